/* The release of NVIDIA's driver: from the files of its module, else from NVML, which containers have without those. */
#include <stdio.h>
#include <string.h>

#include "backend/health/internal.h"

#define LINE_SIZE 512

/* The first word that is numbers with points between: "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05". */
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
    nvml = gb_nvml_open(why);
    if (nvml)
        gb_nvml_release(nvml, ret);
    gb_nvml_close(nvml);
}
