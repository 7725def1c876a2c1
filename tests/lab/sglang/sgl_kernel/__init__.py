"""A stand-in for SGLang's CUDA-only package of kernels: the few operators that SGLang 0.5.23 imports from it on its CPU paths.

In plain torch, after the Triton versions of the same functions in SGLang itself (sglang/kernels/ops/{kvcache,speculative}),
so that a real SGLang server runs on a machine without a GPU and without AMX. Slow; for tests only.
"""

import ctypes

import torch

__version__ = "0.0.0+standin"


# ------------------------------------------------------------ kv cache / pools
def copy_all_layer_kv_cache_cpu(data_ptrs, strides, tgt_loc, src_loc):
    src, tgt = src_loc.tolist(), tgt_loc.tolist()
    for p, s in zip(data_ptrs.tolist(), strides.tolist(), strict=False):
        tmp = [ctypes.string_at(p + i * s, s) for i in src]  # read all, then write
        for j, b in zip(tgt, tmp, strict=False):
            ctypes.memmove(p + j * s, b, s)


def assign_req_to_token_pool_cpu(req_pool_indices, req_to_token, start, end, out_cache_loc, pool_len):
    o = 0
    for r, s, e in zip(req_pool_indices.tolist(), start.tolist(), end.tolist(), strict=False):
        req_to_token[r, s:e] = out_cache_loc[o : o + e - s].to(req_to_token.dtype)
        o += e - s


def assign_extend_cache_locs_cpu(req_pool_indices, req_to_token, start, end, out_cache_loc, pool_len):
    o = 0
    for r, s, e in zip(req_pool_indices.tolist(), start.tolist(), end.tolist(), strict=False):
        out_cache_loc[o : o + e - s] = req_to_token[r, s:e].to(out_cache_loc.dtype)
        o += e - s


def assign_draft_cache_locs_contiguous_cpu(req_pool_indices, req_to_token, seq_lens, out_cache_loc, pool_len, topk, num_cols):
    n = topk * num_cols
    out = out_cache_loc.view(-1)
    for i, (r, s) in enumerate(zip(req_pool_indices.tolist(), seq_lens.tolist(), strict=False)):
        out[i * n : (i + 1) * n] = req_to_token[r, s : s + n].to(out.dtype)


# ------------------------------------------------------------ EAGLE bookkeeping
def fill_bonus_tokens_cpu(accept_tokens, accept_lens, bonus_tokens, accept_stride):
    t = accept_tokens.reshape(-1)
    bs = accept_lens.numel()
    idx = torch.arange(bs) * accept_stride + accept_lens.to(torch.int64) - 1
    bonus_tokens[:bs] = t[idx].to(bonus_tokens.dtype)


def fill_accept_out_cache_loc_cpu(accept_index, out_cache_loc, accept_out_cache_loc):
    a = accept_index.reshape(-1)
    a = a[a > -1].to(torch.int64)
    accept_out_cache_loc[: a.numel()] = out_cache_loc[a].to(accept_out_cache_loc.dtype)


def rotate_input_ids_cpu(input_ids, extend_start_loc, extend_seq_lens, topk_index, select_index=None):
    topk = topk_index.reshape(-1).tolist()
    sel = None if select_index is None else select_index.tolist()
    for i, (s, n) in enumerate(zip(extend_start_loc.tolist(), extend_seq_lens.tolist(), strict=False)):
        if n > 1:
            input_ids[s : s + n - 1] = input_ids[s + 1 : s + n].clone()
        if n > 0:
            input_ids[sel[i] if sel is not None else s + n - 1] = topk[i]


def build_tree_kernel_efficient_cpu(
    parent_list,
    selected_index,
    seq_lens,
    tree_mask,
    positions,
    retrieve_index,
    retrieve_next_token,
    retrieve_next_sibling,
    topk,
    depth,
    draft_token_num,
    tree_mask_mode,
):
    bs, n, mode = seq_lens.numel(), draft_token_num, int(tree_mask_mode)
    if mode == 2:
        raise NotImplementedError("QLEN_ONLY_BITPACKING")
    par = parent_list.reshape(bs, -1).tolist() if parent_list.numel() else [[] for _ in range(bs)]
    sel_all = selected_index.reshape(bs, -1).tolist()
    lens = seq_lens.tolist()
    ri, rn, rs = (x.view(bs, n) for x in (retrieve_index, retrieve_next_token, retrieve_next_sibling))
    pos, tm, base = positions.view(-1), tree_mask.view(-1), 0
    for b in range(bs):
        sel, pl, L = sel_all[b], par[b], lens[b]
        nxt, sib = rn[b].tolist(), rs[b].tolist()
        where = {}
        for k, v in enumerate(sel):
            where.setdefault(v, k)
        for i in range(n - 1, 0, -1):
            p = sel[i - 1] // topk
            pp = 0 if p == 0 else (where[pl[p]] + 1 if pl[p] in where else None)
            if pp is not None:
                if nxt[pp] != -1:
                    sib[i] = nxt[pp]
                nxt[pp] = i
        ri[b] = torch.arange(n, dtype=ri.dtype) + b * n
        rn[b] = torch.tensor(nxt, dtype=rn.dtype)
        rs[b] = torch.tensor(sib, dtype=rs.dtype)
        q = torch.zeros((n, n), dtype=torch.bool)
        q[:, 0] = True
        pb = [L] * n
        for t in range(1, n):
            cur, d = t - 1, 0
            for _ in range(depth):
                d += 1
                q[t, cur + 1] = True
                p = sel[cur] // topk
                if p == 0 or pl[p] not in where:
                    break
                cur = where[pl[p]]
            pb[t] = L + d
        pos[b * n : (b + 1) * n] = torch.tensor(pb, dtype=pos.dtype)
        if mode == 0:  # FULL_MASK: rows of seq_len + n; prefix part is preset to True by the caller
            w = L + n
            for t in range(n):
                o = base + t * w + L
                tm[o : o + n] = q[t].to(tm.dtype)
            base += n * w
        else:
            tm[b * n * n : (b + 1) * n * n] = q.reshape(-1).to(tm.dtype)


def verify_tree_greedy_cpu(
    predicts, accept_index, accept_token_num, candidates, retrive_index, retrive_next_token, retrive_next_sibling, target_predict
):
    bs, n = candidates.shape
    width = accept_index.shape[1]
    tp = target_predict.reshape(-1).tolist()
    cand, ri, rn, rs = (x.reshape(bs, n).tolist() for x in (candidates, retrive_index, retrive_next_token, retrive_next_sibling))
    for b in range(bs):
        last, cur, acc = ri[b][0], 0, 0
        accept_index[b, 0] = last
        for _ in range(1, width):
            cur = rn[b][cur]
            hit = False
            while cur != -1:
                if cand[b][cur] == tp[last]:
                    predicts[last] = tp[last]
                    acc += 1
                    last = ri[b][cur]
                    accept_index[b, acc] = last
                    hit = True
                    break
                cur = rs[b][cur]
            if not hit:
                break
        accept_token_num[b] = acc
        predicts[last] = tp[last]


# ------------------------------------------------------------ attention
def build_draft_decode_metadata_cpu(req_to_token, req_pool_indices, seq_lens, topk, num_steps, pool_len):
    """One row per (request, branch): the request's prefix slots, then that branch's own draft slots."""
    bs = seq_lens.numel()
    out = torch.zeros((bs * topk, req_to_token.shape[1]), dtype=req_to_token.dtype)
    for i, (r, s) in enumerate(zip(req_pool_indices.tolist(), seq_lens.tolist(), strict=False)):
        for k in range(topk):
            row = out[i * topk + k]
            row[:s] = req_to_token[r, :s]
            c = s + k * num_steps
            row[s : s + num_steps] = req_to_token[r, c : c + num_steps]
    return out


def _sdpa(q, k, v, mask, scale, logit_cap):
    """q [Tq,Hq,D], k [Tk,Hk,D], v [Tk,Hk,Dv], mask [Tq,Tk] bool or None -> [Tq,Hq,Dv]"""
    g = q.shape[1] // k.shape[1]
    qf = q.float().transpose(0, 1)
    kf = k.float().transpose(0, 1).repeat_interleave(g, 0)
    vf = v.float().transpose(0, 1).repeat_interleave(g, 0)
    w = qf @ kf.transpose(1, 2) * scale
    if logit_cap and logit_cap > 0:
        w = logit_cap * torch.tanh(w / logit_cap)
    if mask is not None:
        w = w.masked_fill(~mask, float("-inf"))
    return (torch.softmax(w, -1) @ vf).transpose(0, 1).to(q.dtype)


def _plain_only(is_cross_attn, sliding_window, sinks):
    if sinks is not None or is_cross_attn or sliding_window > 0:
        raise NotImplementedError("attention with sinks, windows or an encoder is not in this stand-in")


def _decode_attention(
    q,
    k_buf,
    v_buf,
    k_scale,
    v_scale,
    o,
    k,
    v,
    loc,
    attn_logits,
    req_to_token,
    req_pool_indices,
    seq_lens,
    sm_scale,
    logit_cap,
    is_cross_attn,
    sliding_window,
    encoder_lens,
    sinks,
):
    _plain_only(is_cross_attn, sliding_window, sinks)
    if k is not None and v is not None and loc is not None:
        k_buf[loc] = k.reshape(-1, *k_buf.shape[1:]).to(k_buf.dtype)
        v_buf[loc] = v.reshape(-1, *v_buf.shape[1:]).to(v_buf.dtype)
    for i, (r, s) in enumerate(zip(req_pool_indices.tolist(), seq_lens.tolist(), strict=False)):
        t = req_to_token[r, :s].long()
        o[i : i + 1] = _sdpa(q[i : i + 1], k_buf[t], v_buf[t], None, sm_scale, logit_cap)


def _extend_attention(
    q,
    k,
    v,
    o,
    k_buf,
    v_buf,
    k_scale,
    v_scale,
    req_to_token,
    req_pool_indices,
    seq_lens,
    extend_seq_lens,
    extend_start_loc,
    max_extend_len,
    sm_scale,
    logit_cap,
    is_cross_attn,
    sliding_window,
    encoder_lens,
    sinks,
    tree_mask,
    is_causal,
):
    _plain_only(is_cross_attn, sliding_window, sinks)
    mo = 0
    for r, s, n, st in zip(
        req_pool_indices.tolist(), seq_lens.tolist(), extend_seq_lens.tolist(), extend_start_loc.tolist(), strict=False
    ):
        t = req_to_token[r, :s].long()
        mask = None
        if is_causal:
            mask = torch.ones((n, s), dtype=torch.bool)
            if tree_mask is not None:  # QLEN_ONLY: n x n per request
                mask[:, s - n :] = tree_mask[mo : mo + n * n].view(n, n).bool()
                mo += n * n
            else:
                mask[:, s - n :] = torch.ones((n, n), dtype=torch.bool).tril()
        o[st : st + n] = _sdpa(q[st : st + n], k_buf[t], v_buf[t], mask, sm_scale, logit_cap)


_lib = torch.library.Library("sgl_kernel", "FRAGMENT")
_lib.define(
    "decode_attention_cpu(Tensor q, Tensor(a!) k_buf, Tensor(b!) v_buf, float k_scale, float v_scale, Tensor(c!) o, "
    "Tensor? k, Tensor? v, Tensor? loc, Tensor attn_logits, Tensor req_to_token, Tensor req_pool_indices, Tensor seq_lens, "
    "float sm_scale, float logit_cap, bool is_cross_attn, int sliding_window, Tensor? encoder_lens, Tensor? sinks) -> ()"
)
_lib.define(
    "extend_attention_cpu(Tensor q, Tensor? k, Tensor? v, Tensor(a!) o, Tensor k_buf, Tensor v_buf, float k_scale, "
    "float v_scale, Tensor req_to_token, Tensor req_pool_indices, Tensor seq_lens, Tensor extend_seq_lens, "
    "Tensor extend_start_loc, int max_extend_len, float sm_scale, float logit_cap, bool is_cross_attn, int sliding_window, "
    "Tensor? encoder_lens, Tensor? sinks, Tensor? tree_mask, bool is_causal) -> ()"
)
_lib.impl("decode_attention_cpu", _decode_attention, "CompositeExplicitAutograd")
_lib.impl("extend_attention_cpu", _extend_attention, "CompositeExplicitAutograd")
