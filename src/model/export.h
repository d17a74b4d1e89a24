/* How memory reaches another process. */
#ifndef GB_MODEL_EXPORT_H
#define GB_MODEL_EXPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "model/device.h"

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

#endif
