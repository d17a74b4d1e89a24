/* Device health, read from a fake NVML and from fake files of the kernel. */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "core/observe/health.h"
#include "gb_test.h"

static const struct gb_device_rec gpu = {.uuid = "GPU-01010101-0101-0101-0101-010101010101"};
static char folder[64];
static char answers[96];

/* Writes the file that fake_nvml.c reads. The file is replaced by a rename, so that the reading thread never sees half
 * of it. */
static void answer(const char *lines) {
    char fresh[112];
    FILE *f;

    snprintf(fresh, sizeof(fresh), "%s.new", answers);
    f = fopen(fresh, "w");
    ck_assert_ptr_nonnull(f);
    fputs(lines, f);
    fclose(f);
    ck_assert_int_eq(rename(fresh, answers), 0);
}

static struct gb_health ask(enum gb_health_policy policy, const char *root, const struct gb_device_rec *device) {
    struct gb_health_reader *reader = gb_health_reader_new(policy, root);
    struct gb_health h;

    ck_assert_ptr_nonnull(reader);
    gb_health_read(reader, device, &h);
    gb_health_reader_free(reader);
    ck_assert_int_gt(h.at_us, 0);
    return h;
}

START_TEST(all_of_it) {
    struct gb_health h;

    answer("reasons 68\nprocesses 3\n");
    h = ask(GB_HEALTH_AUTO, NULL, &gpu);
    ck_assert_int_eq(h.source, GB_HEALTH_NVML);
    ck_assert_str_eq(h.reason, "");
    ck_assert(h.gpu_utilization == 0.37 && h.memory_utilization == 0.12 && h.temperature_c == 54);
    ck_assert(h.power_w == 123.456 && h.power_limit_w == 700);
    ck_assert(h.has_ecc && h.ecc_corrected == 3 && h.ecc_uncorrected == 0);
    ck_assert(h.sm_mhz == 1980 && h.memory_mhz == 3201);
    ck_assert(h.has_reasons && h.reasons == (1u << GB_CLOCK_sw_power_cap | 1u << GB_CLOCK_hw_thermal_slowdown));
    ck_assert(h.has_processes && h.process_count == 3 && h.processes_more == 0);
    ck_assert_uint_eq(h.processes[0].pid, (unsigned)getpid());
    ck_assert_str_eq(h.processes[0].name, "test_health");
    ck_assert_str_eq(h.processes[1].name, "");
    ck_assert(h.processes[1].used_bytes == UINT64_MAX);
}
END_TEST

/* A part of a GPU has the processes of the part, and numbers of the whole GPU, whose utilization NVML does not give. */
START_TEST(of_a_mig_device) {
    const struct gb_device_rec part = {.uuid = "MIG-01010101-0101-0101-0101-010101010101"};
    struct gb_health h;

    answer("processes 1\n");
    h = ask(GB_HEALTH_AUTO, NULL, &part);
    ck_assert_int_eq(h.source, GB_HEALTH_NVML);
    ck_assert_str_eq(h.reason, "");
    ck_assert(isnan(h.gpu_utilization) && isnan(h.memory_utilization));
    ck_assert(h.temperature_c == 54 && h.power_w == 123.456 && h.sm_mhz == 1980 && h.has_ecc && h.has_reasons);
    ck_assert(h.has_processes && h.process_count == 1);
    answer("processes 1\nfail.nvmlDeviceGetDeviceHandleFromMigDeviceHandle 4\n");
    h = ask(GB_HEALTH_AUTO, NULL, &part);
    ck_assert_int_eq(h.source, GB_HEALTH_NVML);
    ck_assert_ptr_nonnull(strstr(h.reason, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle"));
    ck_assert(isnan(h.temperature_c) && isnan(h.power_w) && h.sm_mhz == 0 && !h.has_ecc && !h.has_reasons);
    ck_assert(h.has_processes && h.process_count == 1);
}
END_TEST

/* Writes a file below the folder, with the folders above it. */
static void write_file(const char *path, const char *text) {
    char command[256];
    char full[160];
    FILE *f;

    snprintf(full, sizeof(full), "%s%s", folder, path);
    snprintf(command, sizeof(command), "mkdir -p $(dirname %s)", full);
    ck_assert_int_eq(system(command), 0);
    f = fopen(full, "w");
    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    fclose(f);
}

/* From NVML, the text of the module, and its own file, each before the one before it. */
START_TEST(the_drivers_release) {
    char release[GB_RELEASE_SIZE];

    answer("fail.nvmlSystemGetDriverVersion 3\n");
    gb_driver_release(folder, release);
    ck_assert_str_eq(release, "");
    answer("release 95\n");
    gb_driver_release(folder, release);
    ck_assert_str_eq(release, "580.95.04");
    write_file("/proc/driver/nvidia/version", "no numbers here 580 12\n");
    gb_driver_release(folder, release);
    ck_assert_str_eq(release, "580.95.04");
    write_file("/proc/driver/nvidia/version",
               "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release "
               "Build  (dvs-builder@U16)  Thu Jan 23 22:46:54 UTC 2025\nGCC version: 12\n");
    gb_driver_release(folder, release);
    ck_assert_str_eq(release, "570.86.15");
    write_file("/sys/module/nvidia/version", "540.2.0\n");
    gb_driver_release(folder, release);
    ck_assert_str_eq(release, "540.2.0");
}
END_TEST

START_TEST(simulated) {
    struct gb_device_rec host = {.uuid = "HOST-01010101-0101-0101-0101-010101010101", .integrated = true};

    answer("");
    ck_assert_int_eq(ask(GB_HEALTH_AUTO, NULL, &host).source, GB_HEALTH_NONE);
    ck_assert_ptr_nonnull(strstr(ask(GB_HEALTH_AUTO, NULL, &host).reason, "simulated"));
    ck_assert_int_eq(ask(GB_HEALTH_ONLY_NVML, NULL, &host).source, GB_HEALTH_NVML);
    ck_assert_int_eq(ask(GB_HEALTH_OFF, NULL, &gpu).source, GB_HEALTH_NONE);
}
END_TEST

/* For each NVML call, a test whether health has its value. */
static bool has_load(const struct gb_health *h) {
    return !isnan(h->gpu_utilization) && !isnan(h->memory_utilization);
}
static bool has_temperature(const struct gb_health *h) {
    return !isnan(h->temperature_c);
}
static bool has_power(const struct gb_health *h) {
    return !isnan(h->power_w);
}
static bool has_limit(const struct gb_health *h) {
    return !isnan(h->power_limit_w);
}
static bool has_ecc(const struct gb_health *h) {
    return h->has_ecc;
}
static bool has_clocks(const struct gb_health *h) {
    return h->sm_mhz > 0 && h->memory_mhz > 0;
}
static bool has_reasons(const struct gb_health *h) {
    return h->has_reasons;
}

static const struct {
    const char *call;
    bool (*has)(const struct gb_health *);
} calls[] = {{"nvmlDeviceGetUtilizationRates", has_load},
             {"nvmlDeviceGetTemperature", has_temperature},
             {"nvmlDeviceGetPowerUsage", has_power},
             {"nvmlDeviceGetEnforcedPowerLimit", has_limit},
             {"nvmlDeviceGetTotalEccErrors", has_ecc},
             {"nvmlDeviceGetClockInfo", has_clocks},
             {"nvmlDeviceGetCurrentClocksEventReasons", has_reasons}};
#define CALLS (int)(sizeof(calls) / sizeof(calls[0]))

static struct gb_health with_failure(const char *call, int code) {
    char line[96];

    snprintf(line, sizeof(line), "fail.%s %d\n", call, code);
    answer(line);
    return ask(GB_HEALTH_AUTO, NULL, &gpu);
}

START_TEST(not_supported) {
    struct gb_health h = with_failure(calls[_i].call, 3);
    int i;

    ck_assert_int_eq(h.source, GB_HEALTH_NVML);
    ck_assert_str_eq(h.reason, "");
    for (i = 0; i < CALLS; i++)
        ck_assert_msg(calls[i].has(&h) == (i != _i), "%s", calls[i].call);
}
END_TEST

START_TEST(failing) {
    struct gb_health h = with_failure(calls[_i].call, 999);
    int i;

    ck_assert_int_eq(h.source, GB_HEALTH_NVML);
    ck_assert_ptr_nonnull(strstr(h.reason, calls[_i].call));
    ck_assert_ptr_nonnull(strstr(h.reason, "999"));
    for (i = 0; i < CALLS; i++)
        ck_assert_msg(calls[i].has(&h) == (i != _i), "%s", calls[i].call);
}
END_TEST

START_TEST(lost) {
    struct gb_health h = with_failure(calls[_i].call, 15);
    int i;

    ck_assert_int_eq(h.source, GB_HEALTH_NONE);
    ck_assert_ptr_nonnull(strstr(h.reason, "GPU is lost"));
    for (i = 0; i < CALLS; i++)
        ck_assert(!calls[i].has(&h));
}
END_TEST

START_TEST(no_nvml) {
    struct gb_device_rec other = {.uuid = "GPU-ffffffff-0101-0101-0101-010101010101"};
    struct gb_health_reader *reader;
    struct gb_health h = with_failure("nvmlInit_v2", 9);

    ck_assert_int_eq(h.source, GB_HEALTH_NONE);
    ck_assert_str_eq(h.reason, "nvmlInit_v2: Driver Not Loaded (9)");
    reader = gb_health_reader_new(GB_HEALTH_AUTO, "");
    gb_health_read(reader, &gpu, &h);
    ck_assert_int_eq(h.source, GB_HEALTH_NONE);
    answer(""); /* the driver is loaded later */
    gb_health_read(reader, &gpu, &h);
    ck_assert_int_eq(h.source, GB_HEALTH_NVML);
    gb_health_read(reader, &other, &h);
    ck_assert_int_eq(h.source, GB_HEALTH_NONE);
    ck_assert_ptr_nonnull(strstr(h.reason, "Not Found"));
    gb_health_reader_free(reader);
    ck_assert_int_eq(with_failure("nvmlDeviceGetHandleByUUID", 3).source, GB_HEALTH_NONE);
}
END_TEST

START_TEST(many_processes) {
    struct gb_health h;

    answer("processes 40\n");
    h = ask(GB_HEALTH_AUTO, NULL, &gpu);
    ck_assert(h.process_count == GB_HEALTH_PROCESSES && h.processes_more == 40 - GB_HEALTH_PROCESSES);
    answer("processes 4000\n");
    h = ask(GB_HEALTH_AUTO, NULL, &gpu);
    ck_assert(h.has_processes && h.process_count == 1 && h.processes_more == 4000); /* the graphics process */
}
END_TEST

/* --- files of the kernel ------------------------------------------------------------------------------------------ */

static void put(const char *path, const char *text) {
    char whole[512];
    char *slash;
    FILE *f;

    snprintf(whole, sizeof(whole), "%s%s", folder, path);
    for (slash = strchr(whole + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        ck_assert(mkdir(whole, 0755) == 0 || errno == EEXIST);
        *slash = '/';
    }
    f = fopen(whole, "w");
    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    fclose(f);
}

#define RAILS "/sys/bus/i2c/devices/1-0040/hwmon/hwmon3"

START_TEST(a_jetson) {
    struct gb_device_rec orin = {.uuid = "GPU-02020202-0101-0101-0101-010101010101", .integrated = true};
    struct gb_health h = ask(GB_HEALTH_ONLY_SYSTEM, folder, &orin);

    ck_assert_int_eq(h.source, GB_HEALTH_NONE);
    ck_assert_ptr_nonnull(strstr(h.reason, "kernel"));
    put("/sys/class/devfreq/17000000.ga10b/device/load", "473\n");
    put("/sys/class/devfreq/17000000.ga10b/cur_freq", "1020000000\n");
    put("/sys/class/thermal/thermal_zone0/type", "CPU-therm\n");
    put("/sys/class/thermal/thermal_zone0/temp", "61000\n");
    put("/sys/class/thermal/thermal_zone1/type", "GPU-therm\n");
    put("/sys/class/thermal/thermal_zone1/temp", "-4500\n");
    put(RAILS "/in1_label", "VDD_IN\n");
    put(RAILS "/in1_input", "19000\n");
    put(RAILS "/curr1_input", "1000\n");
    put(RAILS "/in2_label", "VDD_CPU_GPU_CV\n");
    put(RAILS "/in2_input", "5000\n");
    put(RAILS "/curr2_input", "1500\n");
    h = ask(GB_HEALTH_ONLY_SYSTEM, folder, &orin);
    ck_assert_int_eq(h.source, GB_HEALTH_SYSTEM);
    ck_assert_str_eq(h.reason, "");
    ck_assert(h.gpu_utilization == 0.473 && h.temperature_c == -4.5 && h.power_w == 7.5 && h.sm_mhz == 1020);
    ck_assert(!h.has_ecc && !h.has_reasons && isnan(h.memory_utilization));
    /* Newer devices have an NVML that reports few values. */
    answer("fail.nvmlDeviceGetUtilizationRates 3\nfail.nvmlDeviceGetPowerUsage 3\n");
    h = ask(GB_HEALTH_AUTO, folder, &orin);
    ck_assert_int_eq(h.source, GB_HEALTH_NVML);
    ck_assert(h.gpu_utilization == 0.473 && h.power_w == 7.5 && h.temperature_c == 54 && h.sm_mhz == 1980);
    answer("fail.nvmlInit_v2 9\n");
    ck_assert_int_eq(ask(GB_HEALTH_AUTO, folder, &orin).source, GB_HEALTH_SYSTEM);
    ck_assert_int_eq(ask(GB_HEALTH_AUTO, folder, &gpu).source, GB_HEALTH_NONE); /* the files describe no discrete
                                                                                 * card */
    put("/sys/class/devfreq/17000000.ga10b/device/load", "rubbish\n");
    put("/sys/class/thermal/thermal_zone1/temp", "");
    h = ask(GB_HEALTH_ONLY_SYSTEM, folder, &orin);
    ck_assert(isnan(h.gpu_utilization) && isnan(h.temperature_c) && h.power_w == 7.5);
}
END_TEST

/* --- the watch ---------------------------------------------------------------------------------------------------- */

static struct gb_health until(struct gb_health_watch *w, bool (*right)(const struct gb_health *)) {
    struct gb_health h;
    int i;

    for (i = 0; i < 20000; i++) {
        gb_health_watch_get(w, 0, &h);
        if (right(&h))
            return h;
        usleep(1000);
    }
    ck_abort_msg("it never came");
    return h;
}

static bool is_hot(const struct gb_health *h) {
    return h->temperature_c == 99;
}
static bool is_known(const struct gb_health *h) {
    return h->source == GB_HEALTH_NVML;
}

START_TEST(watched) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_health_watch *w = NULL;
    struct gb_health h;
    struct gb_health later;
    uint64_t began_ns;

    answer("");
    ck_assert_int_eq(gb_health_watch_start(GB_HEALTH_AUTO, "", 1, &gpu, 1, &w, &err), 0);
    until(w, is_known);
    answer("temperature 99\n");
    until(w, is_hot);
    gb_health_watch_get(w, 1, &h);
    ck_assert_int_eq(h.source, GB_HEALTH_NONE);
    /* The driver hangs: the last reading stays, with its time, and closing does not wait for the call. */
    answer("temperature 99\nhang.nvmlDeviceGetPowerUsage 1\n");
    usleep(50000);
    gb_health_watch_get(w, 0, &h);
    usleep(50000);
    gb_health_watch_get(w, 0, &later);
    ck_assert(h.at_us == later.at_us && later.temperature_c == 99);
    began_ns = gb_clock_ns();
    gb_health_watch_stop(w);
    ck_assert_uint_lt(gb_clock_ns() - began_ns, 10 * GB_NS_PER_S);
    answer(""); /* the call returns after the watch was closed */
    usleep(100000);
}
END_TEST

START_TEST(changes) {
    struct gb_health cool = {.source = GB_HEALTH_NVML, .has_reasons = true, .has_ecc = true, .ecc_uncorrected = 2};
    struct gb_health hot = cool;
    struct gb_health bad = cool;
    struct gb_health gone;

    hot.reasons = 1u << GB_CLOCK_sw_thermal_slowdown | 1u << GB_CLOCK_gpu_idle;
    bad.ecc_uncorrected = 3;
    gb_health_clear(&gone, "lost");
    ck_assert_uint_eq(gb_health_changes(&cool, &cool), 0);
    ck_assert_uint_eq(gb_health_changes(&cool, &hot), 1u << GB_HEALTH_SLOWED_DOWN);
    ck_assert_uint_eq(gb_health_changes(&hot, &hot), 0);
    ck_assert_uint_eq(gb_health_changes(&hot, &cool), 1u << GB_HEALTH_RECOVERED);
    ck_assert_uint_eq(gb_health_changes(&cool, &bad), 1u << GB_HEALTH_ECC_ROSE);
    ck_assert_uint_eq(gb_health_changes(&bad, &cool), 0);
    ck_assert_uint_eq(gb_health_changes(&hot, &gone), 1u << GB_HEALTH_LOST);
    ck_assert_uint_eq(gb_health_changes(&gone, &hot), 1u << GB_HEALTH_SLOWED_DOWN);
    hot.reasons = 1u << GB_CLOCK_sw_power_cap; /* ordinary */
    ck_assert_uint_eq(gb_health_changes(&cool, &hot), 0);
}
END_TEST

/* nvml_open finds the library that this process has already opened under that name. */
static bool open_fake(void) {
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 64);

    if (n <= 0)
        return false;
    path[n] = '\0';
    strcpy(strrchr(path, '/'), "/../../../lib/.libs/libnvidia-ml.so.1");
    return dlopen(path, RTLD_NOW | RTLD_LOCAL) != NULL;
}

int main(void) {
    Suite *suite = suite_create("health");

    if (!open_fake()) {
        puts("SKIP health: its libnvidia-ml is in the build folder alone");
        return 77;
    }
    snprintf(folder, sizeof(folder), "/tmp/gbh-XXXXXX");
    if (!mkdtemp(folder))
        return 1;
    snprintf(answers, sizeof(answers), "%s/answers", folder);
    setenv("FAKE_NVML", answers, 1);
    gb_test_add(suite, "all_of_it", all_of_it, 20);
    gb_test_add(suite, "mig", of_a_mig_device, 20);
    gb_test_add(suite, "release", the_drivers_release, 20);
    gb_test_add(suite, "simulated", simulated, 20);
    gb_test_add_loop(suite, "not_supported", not_supported, 20, CALLS);
    gb_test_add_loop(suite, "failing", failing, 20, CALLS);
    gb_test_add_loop(suite, "lost", lost, 20, CALLS);
    gb_test_add(suite, "no_nvml", no_nvml, 20);
    gb_test_add(suite, "many_processes", many_processes, 20);
    gb_test_add(suite, "a_jetson", a_jetson, 20);
    gb_test_add(suite, "watched", watched, 60);
    gb_test_add(suite, "changes", changes, 20);
    return gb_test_run(suite);
}
