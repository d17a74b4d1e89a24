/* The CUDA driver, opened at run time. Nothing of CUDA is needed to build this: what is used of it is declared here. */
#ifndef GBC_DRIVER_H
#define GBC_DRIVER_H

#include <gpubuf/gpubuf.h>

#include "client/text.h"

struct gbc_driver;
struct gbc_pool;

/* NULL with CANNOT_MAP: no libcuda.so.1, one that is too old, or no device. */
struct gbc_driver *gbc_driver_open(struct gpubuf_error *err);
void gbc_driver_free(struct gbc_driver *driver);

/* The number here of the device with that UUID ("GPU-..." or "MIG-..."): 0, or -1 with CANNOT_MAP. */
int gbc_driver_find(const struct gbc_driver *driver, const char *uuid, int *ret, struct gpubuf_error *err);

/* What the daemon gave. */
struct gbc_grant {
    enum gpubuf_way way;
    int fd; /* stays the caller's */
    unsigned char handle[GBC_HANDLE_BYTES];
    bool has_event;
    unsigned char event[GBC_HANDLE_BYTES];
    bool has_finished;
    unsigned char finished[GBC_HANDLE_BYTES];
    char pool[64];             /* its id; "": unknown, and so it is imported for this grant alone */
    const int *access_devices; /* that are to reach the memory too, by their numbers here */
    size_t access_count;
    uint64_t map_bytes;
    bool write;
    int device; /* here */
};

/* Memory of a device, mapped here. */
struct gbc_device_map {
    enum gpubuf_way way;
    int device;
    uint64_t base; /* where the mapping begins */
    uint64_t bytes;
    uint64_t allocation; /* of vmm */
    struct gbc_pool *pool;
    void *event;    /* NULL: nothing to wait for */
    void *finished; /* NULL: the daemon waits for none */
    bool finishes;  /* it was recorded */
    bool retained;
};

/* The device's context is kept from then on, until the driver is freed. */
int gbc_driver_map(struct gbc_driver *driver, const struct gbc_grant *grant, struct gbc_device_map *ret,
                   struct gpubuf_error *err);
void gbc_driver_unmap(const struct gbc_driver *driver, struct gbc_device_map *map); /* half-made ones too */
int gbc_driver_wait(const struct gbc_driver *driver, const struct gbc_device_map *map, void *stream,
                    struct gpubuf_error *err);
/* Copies bytes of the device's memory, from `at` of the mapping on, after the writes that ran when it was made. */
int gbc_driver_read(const struct gbc_driver *driver, const struct gbc_device_map *map, uint64_t at, void *room,
                    size_t bytes, struct gpubuf_error *err);
/* Records the event that the daemon waits for; unmap waits for it, too. */
int gbc_driver_finish(const struct gbc_driver *driver, struct gbc_device_map *map, void *stream,
                      struct gpubuf_error *err);

#endif
