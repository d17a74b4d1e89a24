/* NVML, found at run time: nothing links it, and these are the few declarations that are needed of it. A call that this
 * library lacks, or that the device does not support, leaves its number unknown; the others continue. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/health/internal.h"

#define LIBRARY "libnvidia-ml.so.1"
#define ASKED 128 /* processes */

enum { SUCCESS = 0, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7, GPU_IS_LOST = 15 };
enum { TEMPERATURE_GPU = 0 };
enum { CLOCK_SM = 1, CLOCK_MEM = 2 };
enum { CORRECTED = 0, UNCORRECTED = 1 };
enum { AGGREGATE = 1 };

typedef int nvml_return;
struct nvml_device;
struct nvml_utilization {
    unsigned gpu; /* percent */
    unsigned memory;
};
/* Of the second and third version of the call. */
struct nvml_process {
    unsigned pid;
    unsigned long long used; /* ~0: not known */
    unsigned gpu_instance;
    unsigned compute_instance;
};

typedef nvml_return processes_fn(struct nvml_device *, unsigned *, struct nvml_process *);

struct gb_nvml {
    void *library;
    nvml_return (*init)(void);
    nvml_return (*shutdown)(void);
    const char *(*error_string)(nvml_return);
    nvml_return (*by_uuid)(const char *, struct nvml_device **);
    /* Each may be NULL. */
    nvml_return (*release)(char *, unsigned);
    nvml_return (*utilization)(struct nvml_device *, struct nvml_utilization *);
    nvml_return (*temperature)(struct nvml_device *, int, unsigned *);
    nvml_return (*power)(struct nvml_device *, unsigned *);
    nvml_return (*power_limit)(struct nvml_device *, unsigned *);
    nvml_return (*ecc)(struct nvml_device *, int, int, unsigned long long *);
    nvml_return (*clock)(struct nvml_device *, int, unsigned *);
    nvml_return (*reasons)(struct nvml_device *, unsigned long long *);
    processes_fn *compute;
    processes_fn *graphics;
};

/* --- opening ------------------------------------------------------------------------------------------------------ */

/* The first of the names that there is; a function pointer goes to *at. */
static bool find(void *library, const char *name, const char *older, void *at) {
    void *fn = dlsym(library, name);

    if (!fn && older)
        fn = dlsym(library, older);
    memcpy(at, &fn, sizeof(fn));
    return fn != NULL;
}

static bool find_all(struct gb_nvml *n) {
    void *l = n->library;
    bool needed = find(l, "nvmlInit_v2", NULL, &n->init) && find(l, "nvmlShutdown", NULL, &n->shutdown) &&
                  find(l, "nvmlErrorString", NULL, &n->error_string) &&
                  find(l, "nvmlDeviceGetHandleByUUID", NULL, &n->by_uuid);

    find(l, "nvmlSystemGetDriverVersion", NULL, &n->release);
    find(l, "nvmlDeviceGetUtilizationRates", NULL, &n->utilization);
    find(l, "nvmlDeviceGetTemperature", NULL, &n->temperature);
    find(l, "nvmlDeviceGetPowerUsage", NULL, &n->power);
    find(l, "nvmlDeviceGetEnforcedPowerLimit", NULL, &n->power_limit);
    find(l, "nvmlDeviceGetTotalEccErrors", NULL, &n->ecc);
    find(l, "nvmlDeviceGetClockInfo", NULL, &n->clock);
    find(l, "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons", &n->reasons);
    find(l, "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2", &n->compute);
    find(l, "nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v2", &n->graphics);
    return needed;
}

struct gb_nvml *gb_nvml_open(char why[GB_HEALTH_REASON_SIZE]) {
    struct gb_nvml *n = calloc(1, sizeof(*n));
    nvml_return rc;

    if (!n) {
        snprintf(why, GB_HEALTH_REASON_SIZE, "no memory");
        return NULL;
    }
    n->library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!n->library) {
        snprintf(why, GB_HEALTH_REASON_SIZE, "there is no NVML: %.120s", dlerror());
    } else if (!find_all(n)) {
        snprintf(why, GB_HEALTH_REASON_SIZE, LIBRARY " is too old");
    } else {
        rc = n->init();
        if (rc == SUCCESS)
            return n;
        snprintf(why, GB_HEALTH_REASON_SIZE, "nvmlInit_v2: %.100s (%d)", n->error_string(rc), rc);
    }
    if (n->library)
        dlclose(n->library);
    free(n);
    return NULL;
}

void gb_nvml_close(struct gb_nvml *n) {
    if (!n)
        return;
    n->shutdown();
    dlclose(n->library);
    free(n);
}

void gb_nvml_release(struct gb_nvml *n, char ret[GB_RELEASE_SIZE]) {
    char text[96] = ""; /* as NVML has it at most */

    if (!n->release || n->release(text, sizeof(text)) != SUCCESS)
        text[0] = '\0';
    snprintf(ret, GB_RELEASE_SIZE, "%.*s", GB_RELEASE_SIZE - 1, text);
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

struct reading {
    const struct gb_nvml *nvml;
    struct nvml_device *device;
    struct gb_health *health;
    bool lost;
};

/* Whether the call gave its number. What is not supported is no failure; of anything else the first is reported. */
static bool good(struct reading *r, nvml_return rc, const char *call) {
    struct gb_health *h = r->health;

    if (rc == GPU_IS_LOST)
        r->lost = true;
    if (rc != SUCCESS && rc != NOT_SUPPORTED && h->reason[0] == '\0')
        snprintf(h->reason, sizeof(h->reason), "%s: %.80s (%d)", call, r->nvml->error_string(rc), rc);
    return rc == SUCCESS;
}

static void read_load(struct reading *r) {
    const struct gb_nvml *n = r->nvml;
    struct nvml_utilization use;
    unsigned value;

    if (n->utilization && good(r, n->utilization(r->device, &use), "nvmlDeviceGetUtilizationRates")) {
        r->health->gpu_utilization = use.gpu / 100.0;
        r->health->memory_utilization = use.memory / 100.0;
    }
    if (n->temperature && good(r, n->temperature(r->device, TEMPERATURE_GPU, &value), "nvmlDeviceGetTemperature"))
        r->health->temperature_c = value;
    if (n->power && good(r, n->power(r->device, &value), "nvmlDeviceGetPowerUsage"))
        r->health->power_w = value / 1000.0;
    if (n->power_limit && good(r, n->power_limit(r->device, &value), "nvmlDeviceGetEnforcedPowerLimit"))
        r->health->power_limit_w = value / 1000.0;
}

static void read_ecc(struct reading *r) {
    static const char call[] = "nvmlDeviceGetTotalEccErrors";
    const struct gb_nvml *n = r->nvml;
    unsigned long long corrected;
    unsigned long long uncorrected;

    if (!n->ecc || !good(r, n->ecc(r->device, CORRECTED, AGGREGATE, &corrected), call) ||
        !good(r, n->ecc(r->device, UNCORRECTED, AGGREGATE, &uncorrected), call))
        return;
    r->health->has_ecc = true;
    r->health->ecc_corrected = corrected;
    r->health->ecc_uncorrected = uncorrected;
}

static void read_clocks(struct reading *r) {
    const struct gb_nvml *n = r->nvml;
    unsigned long long bits;
    unsigned mhz;

    if (n->clock && good(r, n->clock(r->device, CLOCK_SM, &mhz), "nvmlDeviceGetClockInfo"))
        r->health->sm_mhz = mhz;
    if (n->clock && good(r, n->clock(r->device, CLOCK_MEM, &mhz), "nvmlDeviceGetClockInfo"))
        r->health->memory_mhz = mhz;
    if (n->reasons && good(r, n->reasons(r->device, &bits), "nvmlDeviceGetCurrentClocksEventReasons")) {
        r->health->has_reasons = true;
        r->health->reasons = (uint32_t)(bits & ((1u << GB_CLOCK_REASONS) - 1));
    }
}

static void add_process(struct gb_health *h, const struct nvml_process *p) {
    unsigned i;

    for (i = 0; i < h->process_count; i++) {
        if (h->processes[i].pid == p->pid) /* it computes and draws: NVML counts its memory both times */
            return;
    }
    if (h->process_count == GB_HEALTH_PROCESSES) {
        h->processes_more++;
        return;
    }
    h->processes[h->process_count++] = (struct gb_health_process){.pid = p->pid, .used_bytes = p->used};
}

static void read_processes(struct reading *r, processes_fn *ask, const char *call) {
    struct nvml_process list[ASKED];
    unsigned count = ASKED;
    nvml_return rc;
    unsigned i;

    if (!ask)
        return;
    rc = ask(r->device, &count, list);
    if (rc == INSUFFICIENT_SIZE) { /* nothing is written then, but how many there are */
        r->health->has_processes = true;
        r->health->processes_more += count;
        return;
    }
    if (!good(r, rc, call))
        return;
    r->health->has_processes = true;
    for (i = 0; i < count && i < ASKED; i++)
        add_process(r->health, &list[i]);
}

void gb_nvml_read(struct gb_nvml *nvml, const char *uuid, struct gb_health *health) {
    struct reading r = {.nvml = nvml, .health = health};

    gb_health_clear(health, "");
    if (!good(&r, nvml->by_uuid(uuid, &r.device), "nvmlDeviceGetHandleByUUID")) {
        if (health->reason[0] == '\0')
            snprintf(health->reason, sizeof(health->reason), "NVML does not support this device");
        return;
    }
    read_load(&r);
    if (!r.lost)
        read_ecc(&r);
    if (!r.lost)
        read_clocks(&r);
    if (!r.lost)
        read_processes(&r, nvml->compute, "nvmlDeviceGetComputeRunningProcesses");
    if (!r.lost)
        read_processes(&r, nvml->graphics, "nvmlDeviceGetGraphicsRunningProcesses");
    if (r.lost) { /* numbers of before the loss are worth nothing */
        char why[GB_HEALTH_REASON_SIZE];

        memcpy(why, health->reason, sizeof(why));
        gb_health_clear(health, why);
        return;
    }
    health->source = GB_HEALTH_NVML;
}
