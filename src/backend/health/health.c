/* The health of devices, read from NVML and from the kernel's files. NVML is found at run time, and a call that is
 * missing or refused leaves its number unknown. The core's thread gb-health calls this, and may hang in a driver. */
#include "backend/health/health.h"

#include <ctype.h>
#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"

/* The two sources of health.h. */

struct gb_nvml;

/* --- nvml --------------------------------------------------------------------------------------------------------- */

/* Nothing links NVML, so these are the few declarations that are used of it. */

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
    nvml_return (*gpu_of_mig)(struct nvml_device *, struct nvml_device **);
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

/* Finds the first of the names that the library has; a function pointer goes to *at. */
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

    find(l, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", NULL, &n->gpu_of_mig);
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

/* Opens and initialises the library. Returns NULL with the reason. */
static struct gb_nvml *nvml_open(char why[GB_HEALTH_REASON_SIZE]) {
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

/* NULL is accepted */
static void nvml_close(struct gb_nvml *n) {
    if (!n)
        return;
    n->shutdown();
    dlclose(n->library);
    free(n);
}

/* The driver's release, or "" if NVML does not give it. */
static void nvml_release(struct gb_nvml *n, char ret[GB_RELEASE_SIZE]) {
    char text[96] = ""; /* as NVML has it at most */

    if (!n->release || n->release(text, sizeof(text)) != SUCCESS)
        text[0] = '\0';
    snprintf(ret, GB_RELEASE_SIZE, "%.*s", GB_RELEASE_SIZE - 1, text);
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

struct reading {
    const struct gb_nvml *nvml;
    struct nvml_device *device; /* has processes */
    struct nvml_device *gpu;    /* has the rest: device, or the GPU that a MIG device is a part of; NULL: not known */
    struct gb_health *health;
    bool lost;
};

/* Returns true if the call gave its number. An unsupported call is no failure; of other failures the first is
 * reported. */
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

    if (n->utilization && good(r, n->utilization(r->gpu, &use), "nvmlDeviceGetUtilizationRates")) {
        r->health->gpu_utilization = use.gpu / 100.0;
        r->health->memory_utilization = use.memory / 100.0;
    }
    if (n->temperature && good(r, n->temperature(r->gpu, TEMPERATURE_GPU, &value), "nvmlDeviceGetTemperature"))
        r->health->temperature_c = value;
    if (n->power && good(r, n->power(r->gpu, &value), "nvmlDeviceGetPowerUsage"))
        r->health->power_w = value / 1000.0;
    if (n->power_limit && good(r, n->power_limit(r->gpu, &value), "nvmlDeviceGetEnforcedPowerLimit"))
        r->health->power_limit_w = value / 1000.0;
}

static void read_ecc(struct reading *r) {
    static const char call[] = "nvmlDeviceGetTotalEccErrors";
    const struct gb_nvml *n = r->nvml;
    unsigned long long corrected;
    unsigned long long uncorrected;

    if (!n->ecc || !good(r, n->ecc(r->gpu, CORRECTED, AGGREGATE, &corrected), call) ||
        !good(r, n->ecc(r->gpu, UNCORRECTED, AGGREGATE, &uncorrected), call))
        return;
    r->health->has_ecc = true;
    r->health->ecc_corrected = corrected;
    r->health->ecc_uncorrected = uncorrected;
}

static void read_clocks(struct reading *r) {
    const struct gb_nvml *n = r->nvml;
    unsigned long long bits;
    unsigned mhz;

    if (n->clock && good(r, n->clock(r->gpu, CLOCK_SM, &mhz), "nvmlDeviceGetClockInfo"))
        r->health->sm_mhz = mhz;
    if (n->clock && good(r, n->clock(r->gpu, CLOCK_MEM, &mhz), "nvmlDeviceGetClockInfo"))
        r->health->memory_mhz = mhz;
    if (n->reasons && good(r, n->reasons(r->gpu, &bits), "nvmlDeviceGetCurrentClocksEventReasons")) {
        r->health->has_reasons = true;
        r->health->reasons = (uint32_t)(bits & ((1u << GB_CLOCK_REASONS) - 1));
    }
}

static void add_process(struct gb_health *h, const struct nvml_process *p) {
    unsigned i;

    for (i = 0; i < h->process_count; i++) {
        if (h->processes[i].pid == p->pid) /* it computes and draws, and NVML counts its memory both times */
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
    if (rc == INSUFFICIENT_SIZE) { /* only the number of processes was written */
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

/* Temperature, power, clocks and ECC errors are those of a whole GPU, and NVML refuses them for a part of it. */
static void find_gpu(struct reading *r, const char *uuid) {
    const struct gb_nvml *n = r->nvml;

    r->gpu = r->device;
    if (strncmp(uuid, "MIG-", 4) != 0)
        return;
    if (!n->gpu_of_mig || !good(r, n->gpu_of_mig(r->device, &r->gpu), "nvmlDeviceGetDeviceHandleFromMigDeviceHandle"))
        r->gpu = NULL;
}

/* Fills in NVML's numbers, and reason if a call failed. source stays NONE if NVML does not know the device, or has lost
 * it. */
static void nvml_read(struct gb_nvml *nvml, const char *uuid, struct gb_health *health) {
    struct reading r = {.nvml = nvml, .health = health};

    gb_health_clear(health, "");
    if (!good(&r, nvml->by_uuid(uuid, &r.device), "nvmlDeviceGetHandleByUUID")) {
        if (health->reason[0] == '\0')
            snprintf(health->reason, sizeof(health->reason), "NVML does not support this device");
        return;
    }
    find_gpu(&r, uuid);
    if (r.gpu)
        read_load(&r);
    if (r.gpu && !r.lost)
        read_ecc(&r);
    if (r.gpu && !r.lost)
        read_clocks(&r);
    if (!r.lost)
        read_processes(&r, nvml->compute, "nvmlDeviceGetComputeRunningProcesses");
    if (!r.lost)
        read_processes(&r, nvml->graphics, "nvmlDeviceGetGraphicsRunningProcesses");
    if (r.lost) { /* numbers from before the loss are wrong */
        char why[GB_HEALTH_REASON_SIZE];

        memcpy(why, health->reason, sizeof(why));
        gb_health_clear(health, why);
        return;
    }
    health->source = GB_HEALTH_NVML;
}

/* --- system ------------------------------------------------------------------------------------------------------- */

/* The kernel's files about a GPU that is part of the chip, where NVML is missing or gives little (Jetson). */

/* Tried in this order; files of newer kernels come first. */
static const char *const load_paths[] = {"/sys/class/devfreq/*/device/load", "/sys/devices/platform/*/*gpu*/load",
                                         "/sys/devices/platform/*gpu*/load", "/sys/devices/*gpu*/load"};
static const char *const clock_paths[] = {"/sys/class/devfreq/*gpu*/cur_freq",
                                          "/sys/class/devfreq/*.g[apvm]*/cur_freq"};
static const char *const thermal_paths[] = {"/sys/class/thermal/thermal_zone*/type"};
static const char *const rail_paths[] = {"/sys/bus/i2c/devices/*/hwmon/hwmon*/in*_label",
                                         "/sys/bus/i2c/drivers/ina3221*/*/hwmon/hwmon*/in*_label"};

/* Reads the first line of a file, without its end. Returns 0 or -1. */
static int read_line(const char *path, char *out, size_t size) {
    FILE *f = fopen(path, "re");
    bool got;

    if (!f)
        return -1;
    got = fgets(out, (int)size, f) != NULL;
    fclose(f);
    if (got)
        out[strcspn(out, "\r\n")] = '\0';
    return got ? 0 : -1;
}

/* Finds the first path, in the order of the patterns, for which use(path, arg) returns true. */
static bool system_find(const char *root, const char *const *patterns, size_t count, bool (*use)(const char *, void *),
                        void *arg) {
    bool found = false;
    size_t i;

    for (i = 0; i < count && !found; i++) {
        char pattern[4096];
        glob_t paths;
        size_t k;

        if (snprintf(pattern, sizeof(pattern), "%s%s", root, patterns[i]) >= (int)sizeof(pattern))
            return false;
        if (glob(pattern, 0, NULL, &paths) != 0)
            continue;
        for (k = 0; k < paths.gl_pathc && !found; k++)
            found = use(paths.gl_pathv[k], arg);
        globfree(&paths);
    }
    return found;
}

#define FIND(root, paths, use, arg) system_find(root, paths, sizeof(paths) / sizeof((paths)[0]), use, arg)

/* Reads a number from a file. */
static bool take_number(const char *path, void *arg) {
    double *ret = arg;
    char line[64];
    char *end;
    double value;

    if (read_line(path, line, sizeof(line)) < 0)
        return false;
    value = strtod(line, &end);
    if (end == line || *end != '\0' || !isfinite(value))
        return false;
    *ret = value;
    return true;
}

/* Reads a number from a file beside path, whose last component has another name; suffixes may differ. */
static bool take_beside(const char *path, const char *prefix, const char *number, size_t digits, const char *suffix,
                        double *ret) {
    const char *slash = strrchr(path, '/');
    char other[4096];

    return snprintf(other, sizeof(other), "%.*s/%s%.*s%s", (int)(slash - path), path, prefix, (int)digits, number,
                    suffix) < (int)sizeof(other) &&
           take_number(other, ret);
}

static bool names_gpu(const char *text) {
    for (; *text; text++) {
        if (strncasecmp(text, "gpu", 3) == 0)
            return true;
    }
    return false;
}

static bool take_zone(const char *path, void *arg) {
    char type[64];
    double value;

    if (read_line(path, type, sizeof(type)) < 0 || !names_gpu(type) || !take_beside(path, "", "", 0, "temp", &value))
        return false;
    *(double *)arg = value / 1000;
    return true;
}

/* The power of a rail that feeds the GPU, alone or with others: millivolts times milliamperes. */
static bool take_rail(const char *path, void *arg) {
    const char *number = strrchr(path, '/') + 3; /* of "/in" */
    size_t digits = strspn(number, "0123456789");
    char label[64];
    double mv;
    double ma;

    if (read_line(path, label, sizeof(label)) < 0 || !names_gpu(label) ||
        !take_beside(path, "in", number, digits, "_input", &mv) ||
        !take_beside(path, "curr", number, digits, "_input", &ma))
        return false;
    *(double *)arg = mv * ma / 1e6;
    return true;
}

/* Adds the kernel's numbers that are not known yet. Returns true if it added any. */
static bool health_system_read(const char *root, struct gb_health *h) {
    bool any = false;
    double value;

    if (isnan(h->gpu_utilization) && FIND(root, load_paths, take_number, &value) && value >= 0 && value <= 1000) {
        h->gpu_utilization = value / 1000;
        any = true;
    }
    if (isnan(h->temperature_c) && FIND(root, thermal_paths, take_zone, &value)) {
        h->temperature_c = value;
        any = true;
    }
    if (isnan(h->power_w) && FIND(root, rail_paths, take_rail, &value)) {
        h->power_w = value;
        any = true;
    }
    if (h->sm_mhz == 0 && FIND(root, clock_paths, take_number, &value) && value > 0 && value < 1e11) {
        h->sm_mhz = (uint32_t)(value / 1e6);
        any = true;
    }
    return any;
}

/* The name of a process, or "" if it cannot be read. */
static void health_process_name(const char *root, uint32_t pid, char ret[GB_PROCESS_NAME_SIZE]) {
    char path[4096];
    char line[64];
    size_t i;

    ret[0] = '\0';
    if (snprintf(path, sizeof(path), "%s/proc/%u/comm", root, pid) >= (int)sizeof(path) ||
        read_line(path, line, sizeof(line)) < 0)
        return;
    for (i = 0; line[i] && i < GB_PROCESS_NAME_SIZE - 1; i++)
        ret[i] = isprint((unsigned char)line[i]) ? line[i] : '?';
    ret[i] = '\0';
}

/* --- health ------------------------------------------------------------------------------------------------------- */

struct gb_health_reader {
    enum gb_health_policy policy;
    char *root;
    struct gb_nvml *nvml; /* NULL: opened again each time, because a driver may be installed later */
    char no_nvml[GB_HEALTH_REASON_SIZE];
};

int gb_health_policy_parse(const char *word, enum gb_health_policy *ret, struct gb_error *err) {
    static const char *const words[GB_HEALTH_POLICIES] = {"auto", "nvml", "system", "none"};
    int i;

    for (i = 0; i < GB_HEALTH_POLICIES; i++) {
        if (strcmp(word, words[i]) == 0) {
            *ret = (enum gb_health_policy)i;
            return 0;
        }
    }
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the health of devices is read by auto, nvml, system or none");
}

struct gb_health_reader *gb_health_reader_new(enum gb_health_policy policy, const char *root) {
    struct gb_health_reader *reader = calloc(1, sizeof(*reader));

    if (!reader)
        return NULL;
    reader->policy = policy;
    reader->root = strdup(root ? root : "");
    if (!reader->root) {
        free(reader);
        return NULL;
    }
    return reader;
}

void gb_health_reader_free(struct gb_health_reader *reader) {
    if (!reader)
        return;
    nvml_close(reader->nvml);
    free(reader->root);
    free(reader);
}

static bool real(const struct gb_device_rec *device) {
    return strncmp(device->uuid, "HOST-", 5) != 0;
}

static void read_nvml(struct gb_health_reader *reader, const struct gb_device_rec *device, struct gb_health *ret) {
    unsigned i;

    if (!reader->nvml)
        reader->nvml = nvml_open(reader->no_nvml);
    if (!reader->nvml) {
        gb_health_clear(ret, reader->no_nvml);
        return;
    }
    nvml_read(reader->nvml, device->uuid, ret);
    for (i = 0; i < ret->process_count; i++)
        health_process_name(reader->root, ret->processes[i].pid, ret->processes[i].name);
}

static bool wants_system(enum gb_health_policy policy, const struct gb_device_rec *device) {
    return policy == GB_HEALTH_ONLY_SYSTEM || (policy == GB_HEALTH_AUTO && device->integrated && real(device));
}

void gb_health_read(struct gb_health_reader *reader, const struct gb_device_rec *device, struct gb_health *ret) {
    enum gb_health_policy policy = reader->policy;

    gb_health_clear(ret, "");
    if (policy == GB_HEALTH_OFF)
        gb_health_clear(ret, "the daemon was told not to look");
    else if (policy == GB_HEALTH_AUTO && !real(device))
        gb_health_clear(ret, "a simulated device has neither temperature nor clocks");
    else if (policy != GB_HEALTH_ONLY_SYSTEM)
        read_nvml(reader, device, ret);
    if (wants_system(policy, device)) {
        bool found = health_system_read(reader->root, ret);

        if (found && ret->source == GB_HEALTH_NONE)
            ret->source = GB_HEALTH_SYSTEM;
        else if (!found && ret->reason[0] == '\0' && ret->source == GB_HEALTH_NONE)
            snprintf(ret->reason, sizeof(ret->reason), "the kernel shows neither load nor temperature of a GPU");
    }
    ret->at_us = gb_wall_us();
}

/* --- release ------------------------------------------------------------------------------------------------------ */

/* The release of NVIDIA's driver is read from the files of its module, else from NVML, which containers have without
 * those files. */

#define LINE_SIZE 512

/* Finds the first word of numbers with points between: "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05". */
static bool take_release(const char *line, char ret[GB_RELEASE_SIZE]) {
    size_t n;

    for (; *line != '\0'; line += n) {
        line += strspn(line, " \t\n");
        n = strcspn(line, " \t\n");
        if (n < 3 || n >= GB_RELEASE_SIZE || strspn(line, "0123456789.") != n || !memchr(line, '.', n))
            continue;
        memcpy(ret, line, n);
        ret[n] = '\0';
        return true;
    }
    return false;
}

static bool read_release(const char *root, const char *path, char ret[GB_RELEASE_SIZE]) {
    char line[LINE_SIZE] = "";
    char full[LINE_SIZE];
    FILE *file;

    snprintf(full, sizeof(full), "%s%s", root, path);
    file = fopen(full, "re");
    if (!file)
        return false;
    if (!fgets(line, sizeof(line), file))
        line[0] = '\0';
    fclose(file);
    return take_release(line, ret);
}

void gb_driver_release(const char *root, char ret[GB_RELEASE_SIZE]) {
    char why[GB_HEALTH_REASON_SIZE];
    struct gb_nvml *nvml;

    ret[0] = '\0';
    if (read_release(root, "/sys/module/nvidia/version", ret) || read_release(root, "/proc/driver/nvidia/version", ret))
        return;
    nvml = nvml_open(why);
    if (nvml)
        nvml_release(nvml, ret);
    nvml_close(nvml);
}
