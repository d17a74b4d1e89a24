/* Devices and the memory they reach: kinds, capabilities, peers, what is known of an address, how memory reaches
 * another process, and how a device is. Included by model.h.
 *
 * Every gb_..._name answers "unknown" for a value outside its list; every gb_..._parse refuses an unknown word with
 * INVALID_ARGUMENT naming the permitted ones. */
#ifndef GB_MODEL_DEVICE_H
#define GB_MODEL_DEVICE_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* What memory a buffer lives in. This list is fixed by the interface; a device says which kinds it has. */
enum gb_kind {
    GB_KIND_DEVICE,   /* from a pool */
    GB_KIND_SHARED,   /* of the device, made for other processes */
    GB_KIND_MANAGED,  /* moves between the device and the CPU */
    GB_KIND_PINNED,   /* page-locked host memory */
    GB_KIND_PAGEABLE, /* plain host memory */
    GB_KIND_IPC,      /* of the device, by cudaMalloc, for those who know no other handle than CUDA's older one */
    GB_KIND_COUNT
};
const char *gb_kind_name(enum gb_kind kind);
int gb_kind_parse(const char *name, size_t len, enum gb_kind *ret_kind, struct gb_error *err);

/* Whether memory of the kind is taken from the device, and used on its streams only. */
static inline bool gb_kind_of_device(enum gb_kind kind) {
    return kind == GB_KIND_DEVICE || kind == GB_KIND_SHARED || kind == GB_KIND_MANAGED || kind == GB_KIND_IPC;
}

enum gb_capability {
#define GB_CAPABILITY(NAME, name) GB_CAP_##NAME,
#include "model/capabilities.def"
#undef GB_CAPABILITY
    GB_CAP_COUNT
};
const char *gb_capability_name(enum gb_capability capability);

#define GB_UUID_TEXT_SIZE 48
#define GB_REASON_SIZE 96
#define GB_RELEASE_SIZE 32

struct gb_device_rec {
    int index;
    char uuid[GB_UUID_TEXT_SIZE]; /* "GPU-..." or "HOST-..." */
    char name[128];
    uint64_t total_bytes;
    uint64_t free_bytes; /* at the time of asking */
    bool integrated;     /* shares memory with the CPU */
    bool cpu_access;   /* the CPU may read and write device pool memory: no slot is needed between socket and buffer */
    int compute_major; /* 0 on the host backend */
    int compute_minor;
    char driver[GB_RELEASE_SIZE]; /* release of the driver: "580.95.05"; "" where it is not known, or none is used */
    char cuda_driver[GB_RELEASE_SIZE];  /* the newest CUDA that the driver speaks: "13.0"; "" on the host backend */
    char cuda_runtime[GB_RELEASE_SIZE]; /* of the CUDA runtime in the daemon */
    /* Why a kind is not offered; empty where it is. Index: enum gb_kind. */
    char kind_missing[GB_KIND_COUNT][GB_REASON_SIZE];
    /* Why a capability is missing; empty where it is there. Index: enum gb_capability. */
    char cap_missing[GB_CAP_COUNT][GB_REASON_SIZE];
    /* The CPU may read and write memory of this kind straight, without a copy by the device. */
    bool kind_cpu[GB_KIND_COUNT];
    /* Managed memory must be handed to the CPU with gb_mem_attach before the CPU touches it, and back afterwards. */
    bool managed_attach;
};

/* What one device may do with another's memory. */
struct gb_peer_rec {
    int device; /* the one that accesses */
    int peer;   /* whose memory it is */
    bool can_access;
    bool native_atomics;
    int rank;                     /* of the link, as CUDA tells it: lower is faster; 0 where it tells none */
    char why_not[GB_REASON_SIZE]; /* empty when can_access */
};

enum gb_pool_access { GB_POOL_ACCESS_NONE, GB_POOL_ACCESS_READ_WRITE, GB_POOL_ACCESS_COUNT };
const char *gb_pool_access_name(enum gb_pool_access access);
int gb_pool_access_parse(const char *name, size_t len, enum gb_pool_access *ret_access, struct gb_error *err);

/* What the native layer takes an address for. */
enum gb_memory_type {
    GB_MEMORY_UNREGISTERED, /* plain host memory */
    GB_MEMORY_HOST,         /* page-locked */
    GB_MEMORY_DEVICE,
    GB_MEMORY_MANAGED,
    GB_MEMORY_TYPE_COUNT
};
const char *gb_memory_type_name(enum gb_memory_type type);

struct gb_mem_attr {
    enum gb_memory_type type;
    int device;              /* index; -1 for unregistered memory */
    uint64_t device_address; /* 0: none */
    uint64_t host_address;   /* 0: none */
    bool from_pool;
    bool this_pool; /* the pool that was asked about */
};

/* Which way a copy went. */
enum gb_copy_way {
    GB_WAY_NONE,        /* nothing was to be copied */
    GB_WAY_DEVICE,      /* within one device */
    GB_WAY_TO_DEVICE,   /* from host memory */
    GB_WAY_FROM_DEVICE, /* to host memory */
    GB_WAY_HOST,        /* between host memories */
    GB_WAY_PEER,        /* between devices, straight */
    GB_WAY_STAGED,      /* between devices, by way of host memory */
    GB_WAY_COUNT
};
const char *gb_copy_way_name(enum gb_copy_way way);

/* Where bytes lie. device: of memory of a device the owner; of host memory the device it was made for. */
struct gb_location {
    enum gb_kind kind;
    int device;
    void *ptr;
};

/* How memory reaches another process. */

/* In the order in which they are tried. */
enum gb_export_way {
    GB_EXPORT_VMM,    /* a descriptor for cuMemImportFromShareableHandle */
    GB_EXPORT_POOL,   /* a descriptor for cudaMemPoolImportFromShareableHandle; handle is cudaMemPoolPtrExportData */
    GB_EXPORT_LEGACY, /* no descriptor; handle is cudaIpcMemHandle_t */
    GB_EXPORT_MEMFD,  /* a descriptor for mmap */
    GB_EXPORT_WAYS
};

/* "vmm", "pool", "legacy", "memfd"; "unknown" for another value. */
const char *gb_export_way_name(enum gb_export_way way);

/* Refuses an unknown word with INVALID_ARGUMENT naming the permitted ones. */
int gb_export_way_find(const char *name, size_t len, enum gb_export_way *ret_way, struct gb_error *err);

#define GB_EXPORT_HANDLE_BYTES 64 /* of every handle of CUDA's, of memory and of events */

/* What an importer needs. It maps map_bytes of the descriptor, or of what the handle names, from the start; the bytes
 * begin at offset in that. */
struct gb_export {
    enum gb_export_way way;
    int fd; /* -1: none. Closed by gb_export_done; close-on-exec */
    unsigned char handle[GB_EXPORT_HANDLE_BYTES];
    unsigned handle_bytes; /* 0: none */
    uint64_t map_bytes;    /* whole pages, or units of the device's memory where it has larger ones */
    uint64_t offset;
    int device; /* index, as the daemon counts */
};

#define GB_EXPORT_INIT ((struct gb_export){.fd = -1})

/* What another process gives of its memory: the other direction. Bytes [offset, offset + bytes) of what fd, or handle,
 * stands for. */
struct gb_import {
    enum gb_export_way way;
    int fd; /* borrowed; -1: none, which is so with LEGACY alone */
    unsigned char handle[GB_EXPORT_HANDLE_BYTES];
    int device;         /* index of that which has the memory; of host memory that which it is for */
    uint64_t map_bytes; /* VMM: of the whole allocation; 0: as many as the bytes need */
    uint64_t offset;
    uint64_t bytes;
};

/* Closes the descriptor, which importers may have kept open. Nothing of the memory ends by it. */
void gb_export_done(struct gb_export *export);

/* How a device is: what NVML or the system last said of it. A plain record: copy it freely. */

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
