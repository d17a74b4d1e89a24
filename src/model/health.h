/* How a device is: what NVML or the system last said of it. A plain record: copy it freely. */
#ifndef GB_MODEL_HEALTH_H
#define GB_MODEL_HEALTH_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

enum gb_health_source {
    GB_HEALTH_NONE, /* nothing is known: see reason */
    GB_HEALTH_NVML,
    GB_HEALTH_SYSTEM, /* files of the kernel, as on a Jetson */
    GB_HEALTH_SOURCES
};
const char *gb_health_source_name(enum gb_health_source source);

enum gb_clock_reason {
#define GB_CLOCK_REASON(bit, name) GB_CLOCK_##name = bit,
#include "model/clock_reasons.def"
#undef GB_CLOCK_REASON
    GB_CLOCK_REASONS
};
const char *gb_clock_reason_name(enum gb_clock_reason reason);

/* Those that mean that something is wrong: too hot, or too little power. */
#define GB_CLOCK_TROUBLE                                                                                               \
    (1u << GB_CLOCK_hw_slowdown | 1u << GB_CLOCK_sw_thermal_slowdown | 1u << GB_CLOCK_hw_thermal_slowdown |            \
     1u << GB_CLOCK_hw_power_brake_slowdown)

#define GB_HEALTH_REASON_SIZE 160
#define GB_HEALTH_PROCESSES 32
#define GB_PROCESS_NAME_SIZE 16

struct gb_health_process {
    uint32_t pid;
    char name[GB_PROCESS_NAME_SIZE]; /* "": not to be read from here */
    uint64_t used_bytes;             /* UINT64_MAX: not known */
};

/* A double that is not known is NAN, a clock that is not known 0. */
struct gb_health {
    enum gb_health_source source;
    char reason[GB_HEALTH_REASON_SIZE]; /* why there is nothing, or not everything; "": nothing to add */
    int64_t at_us;                      /* when it was read; 0: not yet */
    double gpu_utilization;             /* 0 to 1, over NVML's last period */
    double memory_utilization;          /* the same of the memory's bandwidth */
    double temperature_c;
    double power_w;
    double power_limit_w;
    bool has_ecc;
    uint64_t ecc_corrected; /* in the device's lifetime */
    uint64_t ecc_uncorrected;
    uint32_t sm_mhz;
    uint32_t memory_mhz;
    bool has_reasons;
    uint32_t reasons; /* 1u << enum gb_clock_reason */
    bool has_processes;
    unsigned process_count;  /* of those below */
    unsigned processes_more; /* and so many that found no room */
    struct gb_health_process processes[GB_HEALTH_PROCESSES];
};

/* Nothing is known. reason is copied; NULL: "". */
void gb_health_clear(struct gb_health *ret, const char *reason);

#endif
