/* What the kernel shows of a GPU that is part of the chip: where NVML is not there or says little (Jetson). */
#include <ctype.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "backend/health/internal.h"

/* In the order of trying: what newer kernels have comes first. */
static const char *const load_paths[] = {"/sys/class/devfreq/*/device/load", "/sys/devices/platform/*/*gpu*/load",
                                         "/sys/devices/platform/*gpu*/load", "/sys/devices/*gpu*/load"};
static const char *const clock_paths[] = {"/sys/class/devfreq/*gpu*/cur_freq",
                                          "/sys/class/devfreq/*.g[apvm]*/cur_freq"};
static const char *const thermal_paths[] = {"/sys/class/thermal/thermal_zone*/type"};
static const char *const rail_paths[] = {"/sys/bus/i2c/devices/*/hwmon/hwmon*/in*_label",
                                         "/sys/bus/i2c/drivers/ina3221*/*/hwmon/hwmon*/in*_label"};

/* The first line of a file, without its end. -1: none. */
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

/* What use(path, arg) says true to first, in the order of the patterns. */
static bool find(const char *root, const char *const *patterns, size_t count, bool (*use)(const char *, void *),
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

#define FIND(root, paths, use, arg) find(root, paths, sizeof(paths) / sizeof((paths)[0]), use, arg)

/* One number in a file. */
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

/* The same in the file beside path that is called so instead of its last component; suffix of both may differ. */
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

/* A rail that feeds the GPU, alone or among others: millivolts times milliamperes. */
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

bool gb_health_system_read(const char *root, struct gb_health *h) {
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

void gb_health_process_name(const char *root, uint32_t pid, char ret[GB_PROCESS_NAME_SIZE]) {
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
