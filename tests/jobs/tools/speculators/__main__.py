"""A stand-in for speculators 0.9: what its two data commands do with files, flags and exit codes, their bad habits included.

Its Arrow files are lines of JSON. Run as ``python -m speculators``; TOOL_* variables make it misbehave.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any


def prepare(argv: list[str]) -> int:
    parser = argparse.ArgumentParser()
    for flag in ("--model", "--output", "--render-endpoint"):
        parser.add_argument(flag)
    parser.add_argument("--data", action="append")
    for flag in ("--seq-length", "--seed", "--max-samples", "--minimum-valid-tokens", "--num-preprocessing-workers"):
        parser.add_argument(flag, type=int)
    for flag in ("--overwrite", "--trust-remote-code", "--no-skip-token-freq", "--skip-token-freq"):
        parser.add_argument(flag, action="store_true")
    args = parser.parse_args(argv)
    output = Path(args.output)
    if list(output.glob("*.arrow")):
        if not args.overwrite:
            print("Dataset files already exist in output directory, skipping preprocessing.")
            return 0
        shutil.rmtree(output)
    output.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for path in args.data for line in Path(path).read_text().splitlines()]
    pretokenized = {"input_ids", "loss_mask"} <= set(rows[0])
    out = []
    for row in rows:
        if pretokenized:
            ids, mask = row["input_ids"][: args.seq_length], row["loss_mask"][: args.seq_length]
        else:
            assert args.render_endpoint, "render_endpoint is required"
            if "conversations" not in row:
                continue  # it knows no other name
            said = "".join(turn["content"] + turn.get("reasoning_content", "") for turn in row["conversations"])
            ids = list(said.encode())
            mask = [0, *[1] * (len(ids) - 1)]
        if sum(mask) >= (args.minimum_valid_tokens or 1):
            out.append({"input_ids": ids, "loss_mask": mask, "seq_len": len(ids)})
    out = out[: args.max_samples] if args.max_samples else out
    print(f"Map (num_proc=1): 100%|##########| {len(rows)}/{len(rows)} [00:00<00:00, 99.0 examples/s]", file=sys.stderr)
    if os.environ.get("TOOL_LOSES"):
        out = out[: -int(os.environ["TOOL_LOSES"])]
    frequencies = output / "token_freq.pt"
    if not args.skip_token_freq and not frequencies.exists():  # one that is there is believed
        frequencies.write_text(str(sum(sum(row["loss_mask"]) for row in out)))
    (output / "data-00000-of-00001.arrow").write_text("".join(json.dumps(row) + "\n" for row in out))
    (output / "dataset_info.json").write_text("{}")
    if os.environ.get("TOOL_HANGS"):
        Path(os.environ["TOOL_HANGS"]).write_text(str(os.getpid()))
        time.sleep(600)
    (output / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}))
    return int(os.environ.get("TOOL_STATUS", "0"))


def regenerate(argv: list[str]) -> int:
    parser = argparse.ArgumentParser()
    for flag in ("--endpoint", "--model", "--dataset", "--outfile", "--sampling-params"):
        parser.add_argument(flag)
    for flag in ("--concurrency", "--max-tokens", "--max-retries", "--limit"):
        parser.add_argument(flag, type=int)
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args(argv)
    outfile = Path(args.outfile)
    seen = set()
    if args.resume and outfile.exists():
        for line in outfile.read_text().splitlines():
            try:
                seen.add(json.loads(line)["primary_id"])
            except ValueError:
                continue
    errors = outfile.with_name(f"{outfile.stem}.errors{outfile.suffix}")
    with outfile.open("a") as out, errors.open("a") as err:
        for line in Path(args.dataset).read_text().splitlines():
            row = json.loads(line)
            if row["id"] in seen:
                continue
            try:
                samples = converse(args, row)
            except Exception as error:
                err.write(json.dumps({"id": row["id"], "metadata": {"error": repr(error), "generations_completed": 0}}) + "\n")
                err.flush()
                continue
            for sample in samples:
                text = json.dumps(sample) + "\n"
                if os.environ.get("TOOL_TEARS") == sample["id"]:
                    out.write(text[: len(text) // 2])
                    out.flush()
                    os._exit(137)
                out.write(text)
            out.flush()
    print("Pipeline complete")
    return 0  # also when all went wrong


def converse(args: argparse.Namespace, row: dict[str, Any]) -> list[dict[str, Any]]:
    prefix: list[dict[str, Any]] = []
    samples: list[dict[str, Any]] = []
    for turn in row["messages"]:
        prefix.append(turn)
        if turn["role"] != "user":
            continue
        body = {
            **json.loads(args.sampling_params or "{}"),
            "model": args.model,
            "messages": prefix,
            "max_tokens": args.max_tokens,
        }
        request = urllib.request.Request(args.endpoint, json.dumps(body).encode(), {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request) as response:
                data = json.load(response)
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"HTTP {error.code} from {args.endpoint}: {error.read().decode()}") from None
        except OSError as error:
            raise RuntimeError(f"ClientConnectorError(Cannot connect: {error})") from None
        choice = data["choices"][0]
        if not choice["message"].get("content"):
            raise ValueError(f"empty assistant generation (sample {len(samples)})")
        ids, made = data.get("prompt_token_ids"), choice.get("token_ids")
        if not ids or not made:
            raise ValueError("endpoint returned no token ids; it must support return_token_ids")
        samples.append(
            {
                "id": f"{row['id']}_gen{len(samples)}",
                "primary_id": row["id"],
                "input_ids": ids + made,
                "loss_mask": [0] * len(ids) + [1] * len(made),
                "text": "",
                "metadata": {"finish_reason": choice["finish_reason"], "usage": data["usage"]},
            }
        )
        prefix.append({"role": "assistant", "content": choice["message"]["content"]})
        if len(ids) + len(made) > args.max_tokens:
            break  # it is told by nothing but the missing rows
    return samples


if __name__ == "__main__":
    command, *rest = sys.argv[1:]
    sys.exit({"prepare-data": prepare, "regenerate-responses": regenerate}[command](rest))
