/* The first page of a file: the length and the JSON header of a safetensors file of one tensor, with spaces up to
 * GB_DISK_DATA_AT. What safetensors has no words for stands in its __metadata__, whose values are texts:
 *
 *   gpubuf.header_crc32c  of the page with these eight digits as zeros; it comes first
 *   gpubuf.session, gpubuf.buffer, gpubuf.id, gpubuf.generation, gpubuf.run, gpubuf.bytes, gpubuf.crc32c
 *   gpubuf.dtype, gpubuf.shape   those of the buffer; the tensor has U8 and one dimension, its bytes, if safetensors
 *                                has no such type
 *   gpubuf.kind, gpubuf.sealed
 *   gpubuf.labels                JSON text; if it does not fit into the page, gpubuf.labels_omitted is there instead */
#ifndef GB_DISK_HEADER_H
#define GB_DISK_HEADER_H

#include "disk/disk.h"

struct gb_disk_header {
    struct gb_disk_name name;
    struct gb_name session;
    struct gb_name buffer;
    uint64_t bytes;
    uint32_t crc32c;
    enum gb_dtype dtype;
    struct gb_shape shape;
    enum gb_kind kind;
    bool sealed;
    bool labels_omitted;
    char labels[GB_LABELS_MAX]; /* "" for none */
};

/* Returns 0, or -1 with INTERNAL if a name is too long to be one. crc32c: of all bytes. */
int gb_disk_header_build(const struct gb_disk_name *name, const struct gb_disk_meta *meta, uint32_t crc32c,
                         unsigned char page[GB_DISK_DATA_AT], struct gb_error *err);

/* Returns 0, or -1 with CONTENT_DAMAGED, or SATURATED when memory is exhausted. */
int gb_disk_header_parse(const unsigned char page[GB_DISK_DATA_AT], struct gb_disk_header *ret, struct gb_error *err);

#endif
