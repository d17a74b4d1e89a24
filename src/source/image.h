/* What a file becomes in a buffer's memory: raw bytes, the array of a .npy, the tensor of a safetensors file, or a
 * table of its tensors. The order of the bytes is the file's, so that any range of the memory is one range of the file,
 * with zeros between. Pure. source.c calls this. */
#ifndef GB_SOURCE_IMAGE_H
#define GB_SOURCE_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "format/npy.h"
#include "format/table.h"
#include "model/tensor.h"
#include "model/view.h"

enum gb_image_format { GB_IMAGE_AUTO, GB_IMAGE_RAW, GB_IMAGE_NPY, GB_IMAGE_SAFETENSORS };

/* Bytes that tell the format, or the whole file. */
#define GB_IMAGE_LOOK 12

/* What the client says of the file. */
struct gb_image_ask {
    enum gb_image_format format;
    bool has_dtype; /* of raw bytes; otherwise uint8 */
    enum gb_dtype dtype;
    bool has_shape;
    struct gb_shape shape;
    bool pack; /* a safetensors file of one tensor becomes a table too */
};

struct gb_image {
    enum gb_image_format format; /* not AUTO */
    struct gb_table *table;      /* a reference; NULL: one tensor */
    uint64_t skip;               /* bytes of the file before those of the memory */
    bool open;                   /* raw bytes whose number shows at their end: the next two, and shape, are not known */
    uint64_t bytes;              /* of the memory */
    uint64_t file_bytes;
    enum gb_dtype dtype;
    struct gb_shape shape;
    bool scattered; /* the array is in Fortran order */
    struct gb_view view;
};

/* Finds the format by the first bytes of the file, GB_IMAGE_LOOK of them or all. named: what the source's name or type
 * says that it is; AUTO: nothing. *ret_need: how many bytes of the file its header has. Returns 0, or -1 with
 * UNSUPPORTED_ARRAY, BODY_TOO_LARGE or INVALID_ARGUMENT. */
int gb_image_look(const struct gb_image_ask *ask, const char *head, size_t n, enum gb_image_format named,
                  enum gb_image_format *ret, size_t *ret_need, struct gb_error *err);
/* What a path says that it is, by its ending: NPY, SAFETENSORS, or AUTO. */
enum gb_image_format gb_image_named(const char *path, size_t n);
/* Makes the image by the header head[0..n). length: of the file, unless GB_UNLIMITED. Returns 0, or -1 with
 * UNSUPPORTED_ARRAY or SHAPE_MISMATCH. gb_image_done follows in every case. */
int gb_image_plan(const struct gb_image_ask *ask, enum gb_image_format format, const char *head, size_t n,
                  uint64_t length, struct gb_image *ret, struct gb_error *err);
void gb_image_done(struct gb_image *image); /* a zeroed one is accepted */

/* Of memory[at..): how many bytes of the file come next (*ret_gap false) or how many zeros. More than 0. *ret_file:
 * where in the file those bytes are, or what follows the zeros. */
uint64_t gb_image_run(const struct gb_image *image, uint64_t at, bool *ret_gap, uint64_t *ret_file);

/* The file has ended too early, or has more bytes than its header or shape says: sets SHAPE_MISMATCH, and returns
 * -1. */
int gb_image_too_short(const struct gb_image *image, uint64_t length, struct gb_error *err);
int gb_image_too_long(const struct gb_image *image, struct gb_error *err);

#endif
