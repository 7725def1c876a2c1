/* A stand-in for libnvidia-ml.so.1: the calls that eagletui makes, answered like an idle RTX PRO 6000 Blackwell Server Edition.
 *
 * The file named by FAKE_NVML is read again whenever it changes. One setting a line:
 *   count 7                     cards
 *   init error 18               nvmlInit fails          init hang | init crash
 *   card 3 NAME VALUE           util 97, memutil, power 412000 (mW), temp, sm, mem, pstate, used (bytes), gen, width, throttle (bits),
 *                               margin, tx, rx (bytes), noisy 1 (values jitter), ecc, rows, recovery, uuid 40 (another card's number)
 *   card 3 error 15 CALL        this call fails; CALL * is every call
 *   card 3 hang CALL            this call never returns     card 3 crash CALL    SIGSEGV
 *   card 3 name TEXT            the rest of the line, \xNN for any byte
 *   process 3 C PID BYTES       a process on card 3 (C compute, G graphics, M MPS); BYTES -1: not available
 *   missing CALL                the driver has no such function (fails with 13, as an old driver would)
 * FAKE_NVML_COUNT: cards before the file says otherwise (8).
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef unsigned int u32;
typedef unsigned long long u64;
typedef struct { u32 version; u64 total, reserved, free, used; } memory_v2;
typedef struct { u64 total, free, used; } three;
typedef struct { u32 gpu, memory; } utilization;
typedef struct { u32 pid; u64 bytes; u32 gi, ci; } process;
typedef union { double d; u32 ui; u64 ull; } value;
typedef struct { u32 field, scope; long long stamp, latency; u32 type, ret; value v; } field_value;
typedef struct { char legacy[16]; u32 domain, bus, device, id, subsystem; char bus_id[32]; } pci_info;
typedef struct { u32 version; int margin; } margin_v1;

enum { CARDS = 64, FAULTS = 64, PROCESSES = 256, MIB = 1 << 20 };
enum { ERROR, HANG, CRASH };
enum { UTIL, MEMUTIL, POWER, TEMP, SM, MEM, PSTATE, USED, GEN, WIDTH, THROTTLE, MARGIN, TX, RX, NOISY, ECC, ROWS, RECOVERY, UUID, VALUES };
static const char *value_names[VALUES] = {"util", "memutil", "power", "temp", "sm", "mem", "pstate", "used", "gen", "width",
    "throttle", "margin", "tx", "rx", "noisy", "ecc", "rows", "recovery", "uuid"};
static const long long idle[VALUES] = {0, 0, 39170, 26, 180, 405, 8, 0, 1, 16, 0, 59, 765000, 566000, 0, 0, 0, 0, -1};

typedef struct { long long values[VALUES]; char name[96]; } card;
typedef struct { int card, kind, code; char call[64]; } fault;
typedef struct { int card; char kind; u32 pid; u64 bytes; } running;
static card cards[CARDS];
static fault faults[FAULTS];
static running processes[PROCESSES];
static int count, n_faults, n_processes, started;
static char missing[16][64];
static int n_missing;
static struct timespec stamp;

static void unescape(char *to, const char *from, size_t room) {
    size_t n = 0;
    for (; *from && *from != '\n' && n + 1 < room; from++) {
        u32 byte;
        if (from[0] == '\\' && from[1] == 'x' && sscanf(from + 2, "%2x", &byte) == 1) { to[n++] = (char)byte; from += 3; }
        else to[n++] = *from;
    }
    to[n] = 0;
}

static void setting(const char *line) {
    int i, code, pid;
    long long number;
    char word[64], call[64];
    if (sscanf(line, "count %d", &i) == 1) count = i < CARDS ? i : CARDS;
    else if (sscanf(line, "missing %63s", call) == 1 && n_missing < 16) strcpy(missing[n_missing++], call);
    else if (sscanf(line, "init error %d", &code) == 1) faults[n_faults++] = (fault){-1, ERROR, code, "nvmlInitWithFlags"};
    else if (!strncmp(line, "init hang", 9)) faults[n_faults++] = (fault){-1, HANG, 0, "nvmlInitWithFlags"};
    else if (!strncmp(line, "init crash", 10)) faults[n_faults++] = (fault){-1, CRASH, 0, "nvmlInitWithFlags"};
    else if (sscanf(line, "process %d %c %d %lld", &i, word, &pid, &number) == 4 && n_processes < PROCESSES)
        processes[n_processes++] = (running){i, word[0], (u32)pid, (u64)number};
    else if (sscanf(line, "card %d error %d %63s", &i, &code, call) == 3 && n_faults < FAULTS) {
        faults[n_faults] = (fault){i, ERROR, code, ""};
        strcpy(faults[n_faults++].call, call);
    } else if (sscanf(line, "card %d %63s %63s", &i, word, call) == 3 && i >= 0 && i < CARDS) {
        if (!strcmp(word, "name")) unescape(cards[i].name, strstr(line, "name ") + 5, sizeof cards[i].name);
        else if ((!strcmp(word, "hang") || !strcmp(word, "crash")) && n_faults < FAULTS) {
            faults[n_faults] = (fault){i, word[0] == 'h' ? HANG : CRASH, 0, ""};
            strcpy(faults[n_faults++].call, call);
        } else
            for (int v = 0; v < VALUES; v++)
                if (!strcmp(word, value_names[v])) cards[i].values[v] = atoll(call);
    }
}

static void reload(void) {
    struct stat info;
    char line[256];
    const char *path = getenv("FAKE_NVML"), *cards_text = getenv("FAKE_NVML_COUNT");
    int changed = path && !stat(path, &info) &&
                  (info.st_mtim.tv_sec != stamp.tv_sec || info.st_mtim.tv_nsec != stamp.tv_nsec);
    if (started && !changed) return;
    count = cards_text ? atoi(cards_text) : 8;
    n_faults = n_processes = n_missing = 0;
    for (int i = 0; i < CARDS; i++) {
        memcpy(cards[i].values, idle, sizeof idle);
        strcpy(cards[i].name, "NVIDIA RTX PRO 6000 Blackwell Server Edition");
    }
    started = 1;
    FILE *file = changed ? fopen(path, "r") : NULL;
    if (!file) return;
    stamp = info.st_mtim;
    while (fgets(line, sizeof line, file)) setting(line);
    fclose(file);
}

/* What should go wrong in this call; 0 when nothing. */
static int trouble(int number, const char *call) {
    reload();
    for (int i = 0; i < n_missing; i++)
        if (!strcmp(missing[i], call)) return 13;
    for (int i = 0; i < n_faults; i++)
        if (faults[i].card == number && (!strcmp(faults[i].call, call) || !strcmp(faults[i].call, "*"))) {
            if (faults[i].kind == HANG) for (;;) pause();
            if (faults[i].kind == CRASH) raise(SIGSEGV);
            return faults[i].code;
        }
    return 0;
}

static int number_of(card *c) { return (int)(c - cards); }
#define BEGIN(c) do { int code = trouble(number_of(c), __func__); if (code) return code; } while (0)
static long long get(card *c, int v) { return c->values[v]; }
static long long noisy(card *c, int v, int spread) { return get(c, v) + (get(c, NOISY) ? rand() % (2 * spread + 1) - spread : 0); }
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec; }

const char *nvmlErrorString(int code) {
    switch (code) {
    case 3: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case 9: return "Driver Not Loaded";
    case 13: return "Function Not Found";
    case 15: return "GPU is lost";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}
int nvmlInitWithFlags(u32 flags) { (void)flags; return trouble(-1, __func__); }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char *text, u32 room) { snprintf(text, room, "595.58.03"); return trouble(-1, __func__); }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 13020; return trouble(-1, __func__); }
int nvmlDeviceGetCount_v2(u32 *n) { int code = trouble(-1, __func__); *n = (u32)count; return code; }
int nvmlDeviceGetHandleByIndex_v2(u32 i, card **c) { int code = trouble((int)i, __func__); *c = &cards[i]; return (int)i < count ? code : 2; }

int nvmlDeviceGetName(card *c, char *text, u32 room) { BEGIN(c); snprintf(text, room, "%s", c->name); return 0; }
int nvmlDeviceGetUUID(card *c, char *text, u32 room) {
    BEGIN(c);
    int id = get(c, UUID) < 0 ? number_of(c) : (int)get(c, UUID);
    snprintf(text, room, "GPU-%08x-0000-4000-8000-000000000000", (u32)id);
    return 0;
}
int nvmlDeviceGetPciInfo_v3(card *c, pci_info *p) {
    BEGIN(c);
    memset(p, 0, sizeof *p);
    snprintf(p->bus_id, sizeof p->bus_id, "00000000:%02X:00.0", (u32)(6 + number_of(c)));
    return 0;
}
int nvmlDeviceGetMinorNumber(card *c, u32 *n) {
    static const u32 minors[8] = {2, 3, 0, 1, 6, 7, 4, 5};
    BEGIN(c);
    *n = number_of(c) < 8 ? minors[number_of(c)] : (u32)number_of(c);
    return 0;
}
int nvmlDeviceGetMaxClockInfo(card *c, u32 type, u32 *mhz) { BEGIN(c); *mhz = type == 2 ? 12481 : 2430; return 0; }
int nvmlDeviceGetClockInfo(card *c, u32 type, u32 *mhz) { BEGIN(c); *mhz = (u32)(type == 2 ? get(c, MEM) : noisy(c, SM, 15)); return 0; }
int nvmlDeviceGetMaxPcieLinkGeneration(card *c, u32 *n) { BEGIN(c); *n = 5; return 0; }
int nvmlDeviceGetMaxPcieLinkWidth(card *c, u32 *n) { BEGIN(c); *n = 16; return 0; }
int nvmlDeviceGetCurrPcieLinkGeneration(card *c, u32 *n) { BEGIN(c); *n = (u32)get(c, GEN); return 0; }
int nvmlDeviceGetCurrPcieLinkWidth(card *c, u32 *n) { BEGIN(c); *n = (u32)get(c, WIDTH); return 0; }
int nvmlDeviceGetBAR1MemoryInfo(card *c, three *m) { BEGIN(c); *m = (three){131072ull * MIB, 131072ull * MIB, 0}; return 0; }
int nvmlDeviceGetPowerManagementLimitConstraints(card *c, u32 *low, u32 *high) { BEGIN(c); *low = 300000; *high = 600000; return 0; }
int nvmlDeviceGetEnforcedPowerLimit(card *c, u32 *mw) { BEGIN(c); *mw = 600000; return 0; }
int nvmlDeviceGetUtilizationRates(card *c, utilization *u) {
    BEGIN(c);
    long long gpu = noisy(c, UTIL, 4);
    *u = (utilization){gpu < 0 ? 0 : gpu > 100 ? 100 : (u32)gpu, (u32)get(c, MEMUTIL)};
    return 0;
}
int nvmlDeviceGetMemoryInfo_v2(card *c, memory_v2 *m) {
    BEGIN(c);
    if (m->version != (2u << 24 | (u32)sizeof *m)) return 25;
    m->total = 97887ull * MIB, m->reserved = 636ull * MIB, m->used = (u64)get(c, USED);
    m->free = m->total - m->reserved - m->used;
    return 0;
}
int nvmlDeviceGetMemoryInfo(card *c, three *m) {
    BEGIN(c);
    u64 used = (u64)get(c, USED) + 636ull * MIB;
    *m = (three){97887ull * MIB, 97887ull * MIB - used, used};
    return 0;
}
int nvmlDeviceGetPowerUsage(card *c, u32 *mw) { BEGIN(c); *mw = (u32)noisy(c, POWER, (int)get(c, POWER) / 50); return 0; }
int nvmlDeviceGetTemperature(card *c, u32 sensor, u32 *t) { (void)sensor; BEGIN(c); *t = (u32)get(c, TEMP) + (get(c, NOISY) && rand() % 10 == 0); return 0; }
int nvmlDeviceGetMarginTemperature(card *c, margin_v1 *m) { BEGIN(c); m->margin = (int)get(c, MARGIN); return 0; }
int nvmlDeviceGetPerformanceState(card *c, u32 *p) { BEGIN(c); *p = (u32)get(c, PSTATE); return 0; }
int nvmlDeviceGetCurrentClocksEventReasons(card *c, u64 *bits) { BEGIN(c); *bits = (u64)get(c, THROTTLE); return 0; }
int nvmlDeviceGetFanSpeed(card *c, u32 *n) { BEGIN(c); *n = 0; return 3; }
int nvmlDeviceGetPersistenceMode(card *c, u32 *n) { BEGIN(c); *n = 1; return 0; }
int nvmlDeviceGetTotalEccErrors(card *c, u32 type, u32 counter, u64 *n) { (void)counter; BEGIN(c); *n = type ? (u64)get(c, ECC) : 0; return 0; }
int nvmlDeviceGetRemappedRows(card *c, u32 *cor, u32 *unc, u32 *pending, u32 *failed) {
    BEGIN(c);
    *cor = 0, *unc = (u32)get(c, ROWS), *pending = get(c, ROWS) > 0, *failed = 0;
    return 0;
}
int nvmlDeviceGetPcieReplayCounter(card *c, u32 *n) { BEGIN(c); *n = 0; return 0; }
int nvmlDeviceGetTotalEnergyConsumption(card *c, u64 *mj) { BEGIN(c); *mj = (u64)(now() * (double)get(c, POWER)); return 0; }
int nvmlDeviceGetPcieThroughput(card *c, u32 what, u32 *kb) { BEGIN(c); usleep(20000); *kb = (u32)(get(c, what ? RX : TX) / 1024); return 0; }
int nvmlDeviceGetFieldValues(card *c, int n, field_value *f) {
    BEGIN(c);
    for (int i = 0; i < n; i++) {
        f[i].ret = 3, f[i].type = 3;
        if (f[i].field == 197 || f[i].field == 198) f[i].ret = 0, f[i].v.ull = (u64)(now() * (double)noisy(c, f[i].field == 197 ? TX : RX, 1));
        if (f[i].field == 230) f[i].ret = 0, f[i].type = 1, f[i].v.ui = (u32)get(c, RECOVERY);
    }
    return 0;
}

static int list(card *c, char kind, u32 *n, process *out) {
    u32 found = 0, room = *n;
    for (int i = 0; i < n_processes; i++)
        if (processes[i].card == number_of(c) && processes[i].kind == kind) {
            if (out && found < room) out[found] = (process){processes[i].pid, processes[i].bytes, ~0u, ~0u};
            found++;
        }
    *n = found;
    return found > room || (!out && found) ? 7 : 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(card *c, u32 *n, process *out) { BEGIN(c); return list(c, 'C', n, out); }
int nvmlDeviceGetGraphicsRunningProcesses_v3(card *c, u32 *n, process *out) { BEGIN(c); return list(c, 'G', n, out); }
int nvmlDeviceGetMPSComputeRunningProcesses_v3(card *c, u32 *n, process *out) { BEGIN(c); return list(c, 'M', n, out); }
