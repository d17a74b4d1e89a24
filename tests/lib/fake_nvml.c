/* A fake libnvidia-ml.so.1 for the tests of device health. Every call reads the file that FAKE_NVML names, with lines
 * "key number":
 *   gpu memory temperature power limit corrected uncorrected sm mem reasons processes: what is answered
 *   fail.NAME: that call answers with this code; fail.*: all do
 *   hang.NAME: that call does not return while the line has a number other than 0
 * A UUID "MIG-..." names a part of the GPU: it has processes alone, and then the GPU has no utilization. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct utilization {
    unsigned gpu;
    unsigned memory;
};
struct process {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance;
    unsigned compute_instance;
};

static unsigned long long number(const char *key, unsigned long long otherwise) {
    const char *path = getenv("FAKE_NVML");
    FILE *f = path ? fopen(path, "re") : NULL;
    unsigned long long value;
    char name[64];

    while (f && fscanf(f, "%63s %llu", name, &value) == 2) {
        if (strcmp(name, key) == 0)
            otherwise = value;
    }
    if (f)
        fclose(f);
    return otherwise;
}

/* Keys "fail.NAME" and "hang.NAME". */
static int verdict(const char *call) {
    char key[96];

    snprintf(key, sizeof(key), "hang.%s", call);
    while (number(key, 0))
        usleep(5000);
    snprintf(key, sizeof(key), "fail.%s", call);
    return (int)number(key, number("fail.*", 0));
}

#define CALL(name, ...)                                                                                                \
    int name(__VA_ARGS__);                                                                                             \
    int name(__VA_ARGS__)
const char *nvmlErrorString(int code);
const char *nvmlErrorString(int code) {
    return code == 15 ? "GPU is lost" : code == 9 ? "Driver Not Loaded" : code == 6 ? "Not Found" : "Unknown Error";
}

int nvmlInit_v2(void);
int nvmlInit_v2(void) {
    return verdict("nvmlInit_v2");
}

int nvmlShutdown(void);
int nvmlShutdown(void) {
    return 0;
}

CALL(nvmlSystemGetDriverVersion, char *ret, unsigned size) {
    snprintf(ret, size, "580.%llu.04", number("release", 159));
    return verdict("nvmlSystemGetDriverVersion");
}

static int gpu;
static int part;
static int parted; /* a part was asked for */

/* The verdict of a call that only a whole GPU has. */
static int verdict_of(const void *device, const char *call) {
    return device == &part ? 2 : verdict(call);
}

CALL(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, void *device, void **ret) {
    *ret = &gpu;
    return device == &part ? verdict("nvmlDeviceGetDeviceHandleFromMigDeviceHandle") : 2;
}

CALL(nvmlDeviceGetHandleByUUID, const char *uuid, void **ret) {
    parted = strncmp(uuid, "MIG-", 4) == 0;
    *ret = parted ? &part : &gpu;
    return strstr(uuid, "ffff") ? 6 : verdict("nvmlDeviceGetHandleByUUID");
}

CALL(nvmlDeviceGetUtilizationRates, void *device, struct utilization *ret) {
    *ret = (struct utilization){(unsigned)number("gpu", 37), (unsigned)number("memory", 12)};
    return parted && device == &gpu ? 3 : verdict_of(device, "nvmlDeviceGetUtilizationRates");
}

CALL(nvmlDeviceGetTemperature, void *device, int sensor, unsigned *ret) {
    *ret = (unsigned)number("temperature", 54);
    return sensor == 0 ? verdict_of(device, "nvmlDeviceGetTemperature") : 2;
}

CALL(nvmlDeviceGetPowerUsage, void *device, unsigned *ret) {
    *ret = (unsigned)number("power", 123456);
    return verdict_of(device, "nvmlDeviceGetPowerUsage");
}

CALL(nvmlDeviceGetEnforcedPowerLimit, void *device, unsigned *ret) {
    *ret = (unsigned)number("limit", 700000);
    return verdict_of(device, "nvmlDeviceGetEnforcedPowerLimit");
}

CALL(nvmlDeviceGetTotalEccErrors, void *device, int type, int counter, unsigned long long *ret) {
    *ret = type == 0 ? number("corrected", 3) : number("uncorrected", 0);
    return counter == 1 ? verdict_of(device, "nvmlDeviceGetTotalEccErrors") : 2;
}

CALL(nvmlDeviceGetClockInfo, void *device, int type, unsigned *ret) {
    *ret = (unsigned)(type == 1 ? number("sm", 1980) : number("mem", 3201));
    return verdict_of(device, "nvmlDeviceGetClockInfo");
}

CALL(nvmlDeviceGetCurrentClocksEventReasons, void *device, unsigned long long *ret) {
    *ret = number("reasons", 1);
    return verdict_of(device, "nvmlDeviceGetCurrentClocksEventReasons");
}

/* This process, and fictitious ones. */
CALL(nvmlDeviceGetComputeRunningProcesses_v3, void *device, unsigned *count, struct process *ret) {
    unsigned n = (unsigned)number("processes", 2);
    unsigned room = *count;
    unsigned i;

    (void)device;
    *count = n;
    if (n > room)
        return 7;
    for (i = 0; i < n; i++)
        ret[i] = (struct process){i ? 4000000000u + i : (unsigned)getpid(), i == 1 ? ~0ull : 1ull << 20, ~0u, ~0u};
    return verdict("nvmlDeviceGetComputeRunningProcesses_v3");
}

CALL(nvmlDeviceGetGraphicsRunningProcesses_v3, void *device, unsigned *count, struct process *ret) {
    (void)device;
    ret[0] = (struct process){(unsigned)getpid(), 1ull << 20, ~0u, ~0u};
    *count = 1;
    return verdict("nvmlDeviceGetGraphicsRunningProcesses_v3");
}
