/* What a file becomes in memory, by its first bytes and by what the client says of it. The same files are taken and
 * refused as by a PUT of their bytes (api/resources/upload.c). */
#include "source/image.h"

#include <string.h>
#include <strings.h>

#include "format/safetensors.h"
#include "model/model.h"

static const char *name_of(enum gb_image_format format) {
    return format == GB_IMAGE_NPY ? ".npy" : "safetensors file";
}

/* --- the first bytes ---------------------------------------------------------------------------------------------- */

/* A name is a promise: what does not begin as it says is refused, not stored as raw bytes. */
static enum gb_image_format recognize(const struct gb_image_ask *ask, const char *head, size_t n,
                                      enum gb_image_format named) {
    if (ask->format != GB_IMAGE_AUTO)
        return ask->format;
    if (ask->has_dtype || ask->has_shape)
        return GB_IMAGE_RAW;
    if (named != GB_IMAGE_AUTO)
        return named;
    return n >= GB_NPY_MAGIC_BYTES && gb_npy_magic(head, n) ? GB_IMAGE_NPY : GB_IMAGE_RAW;
}

/* Bytes that were taken for a file without a word of the client may be meant as bytes. */
static int refused(const struct gb_image_ask *ask, const struct gb_error *why, struct gb_error *err) {
    gb_error_move(err, why);
    if (ask->format == GB_IMAGE_AUTO && !strstr(why->detail, "format=raw"))
        gb_error_append(err, why->code, "; format \"raw\" takes the bytes as they are");
    return -1;
}

static int cut_off(enum gb_image_format format, uint64_t length, struct gb_error *err) {
    return gb_error_set(err, GB_ERR_UNSUPPORTED_ARRAY, "the source ends at byte %llu, within the header of its %s",
                        (unsigned long long)length, name_of(format));
}

static int header_bytes(enum gb_image_format format, const char *head, size_t n, size_t *ret, struct gb_error *err) {
    if (n < (format == GB_IMAGE_NPY ? GB_NPY_PREFIX : GB_SAFETENSORS_PREFIX))
        return cut_off(format, n, err);
    if (format == GB_IMAGE_NPY && !gb_npy_magic(head, n))
        return gb_error_set(err, GB_ERR_UNSUPPORTED_ARRAY,
                            "the source does not begin as a .npy file; format \"raw\" takes the bytes as they are");
    return format == GB_IMAGE_NPY ? gb_npy_header_bytes(head, ret, err) : gb_safetensors_data_at(head, ret, err);
}

int gb_image_look(const struct gb_image_ask *ask, const char *head, size_t n, enum gb_image_format named,
                  enum gb_image_format *ret, size_t *ret_need, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;

    *ret = recognize(ask, head, n, named);
    *ret_need = 0;
    if (*ret == GB_IMAGE_RAW && ask->format == GB_IMAGE_AUTO && n >= GB_NPY_MAGIC_BYTES && gb_npy_magic(head, n))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "the source is a .npy, which says dtype and shape itself; leave them out, or give format "
                            "\"raw\" to store the file as it is");
    if (*ret == GB_IMAGE_RAW)
        return 0;
    return header_bytes(*ret, head, n, ret_need, &why) < 0 ? refused(ask, &why, err) : 0;
}

static bool ends_in(const char *path, size_t n, const char *suffix) {
    size_t len = strlen(suffix);

    return n >= len && strncasecmp(path + n - len, suffix, len) == 0;
}

enum gb_image_format gb_image_named(const char *path, size_t n) {
    if (ends_in(path, n, ".safetensors"))
        return GB_IMAGE_SAFETENSORS;
    return ends_in(path, n, ".npy") ? GB_IMAGE_NPY : GB_IMAGE_AUTO;
}

/* --- the plan ----------------------------------------------------------------------------------------------------- */

static int plan_raw(const struct gb_image_ask *ask, uint64_t length, struct gb_image *ret, struct gb_error *err) {
    size_t width;

    ret->dtype = ask->has_dtype ? ask->dtype : GB_DTYPE_UINT8;
    ret->shape = ask->shape;
    width = gb_dtype_bytes(ret->dtype);
    ret->open = length == GB_UNLIMITED && !ask->has_shape;
    if (ret->open)
        return 0;
    if (!ask->has_shape && length % width != 0)
        return gb_error_set(err, GB_ERR_SHAPE_MISMATCH,
                            "the source has %llu bytes, which is no whole number of %s with %zu each",
                            (unsigned long long)length, gb_dtype_name(ret->dtype), width);
    if (!ask->has_shape)
        ret->shape = (struct gb_shape){.dims = 1, .dim = {length / width}};
    if (gb_shape_bytes(&ret->shape, ret->dtype, &ret->bytes, err) < 0)
        return -1;
    ret->file_bytes = ret->bytes;
    if (length == GB_UNLIMITED || length == ret->bytes)
        return 0;
    return gb_error_set(err, GB_ERR_SHAPE_MISMATCH, "dtype and shape make %llu bytes, the source has %llu",
                        (unsigned long long)ret->bytes, (unsigned long long)length);
}

/* By a header of n bytes that has dtype and shape. */
static int describe(struct gb_image *image, enum gb_dtype dtype, const struct gb_shape *shape, size_t n,
                    uint64_t length, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;

    if (gb_shape_bytes(shape, dtype, &image->bytes, &why) < 0)
        return gb_error_set(err, GB_ERR_UNSUPPORTED_ARRAY, "the %s: %s", name_of(image->format), why.detail);
    image->dtype = dtype;
    image->shape = *shape;
    image->skip = n;
    image->file_bytes = n + image->bytes;
    if (length == GB_UNLIMITED || length == image->file_bytes)
        return 0;
    return gb_error_set(err, GB_ERR_SHAPE_MISMATCH, "dtype and shape of the %s make %llu bytes, %llu follow its header",
                        name_of(image->format), (unsigned long long)image->bytes, (unsigned long long)(length - n));
}

static int plan_npy(const char *head, size_t n, uint64_t length, struct gb_image *ret, struct gb_error *err) {
    struct gb_axis axis[GB_DIMS_MAX];
    struct gb_npy npy;

    if (gb_npy_parse_header(head, n, &npy, err) < 0 || describe(ret, npy.dtype, &npy.shape, n, length, err) < 0)
        return -1;
    if (!npy.fortran)
        return 0;
    gb_view_axes(&npy.shape, gb_dtype_bytes(npy.dtype), axis);
    ret->view = gb_view_fortran(0, gb_dtype_bytes(npy.dtype), axis, npy.shape.dims);
    ret->scattered = ret->view.axes > 0;
    return 0;
}

static int plan_table(struct gb_image *ret, uint64_t length, struct gb_error *err) {
    const char *text;
    size_t head = gb_table_head(ret->table, &text);

    ret->bytes = gb_table_bytes(ret->table);
    ret->file_bytes = gb_table_file_bytes(ret->table);
    ret->dtype = GB_DTYPE_TENSORS;
    ret->shape = (struct gb_shape){.dims = 1, .dim = {ret->bytes}};
    if (length == GB_UNLIMITED || length == ret->file_bytes)
        return 0;
    return gb_error_set(err, GB_ERR_SHAPE_MISMATCH,
                        "the tensors of the safetensors header have %llu bytes, %llu follow it",
                        (unsigned long long)(ret->file_bytes - head), (unsigned long long)(length - head));
}

static int plan_safetensors(const struct gb_image_ask *ask, const char *head, size_t n, uint64_t length,
                            struct gb_image *ret, struct gb_error *err) {
    struct gb_safetensors file;
    int r;

    if (gb_safetensors_parse(head + GB_SAFETENSORS_LENGTH, n - GB_SAFETENSORS_LENGTH, &file, err) < 0)
        return -1;
    if (file.count > 1 || ask->pack) {
        ret->table = gb_table_take(&file, head, n, err);
        return ret->table ? plan_table(ret, length, err) : -1;
    }
    if (file.count == 0)
        r = gb_error_set(err, GB_ERR_UNSUPPORTED_ARRAY, "the safetensors file holds no tensor");
    else
        r = describe(ret, file.tensors[0].dtype, &file.tensors[0].shape, n, length, err);
    gb_safetensors_done(&file);
    return r;
}

int gb_image_plan(const struct gb_image_ask *ask, enum gb_image_format format, const char *head, size_t n,
                  uint64_t length, struct gb_image *ret, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    int r;

    *ret = (struct gb_image){.format = format};
    if (length != GB_UNLIMITED && length > INT64_MAX)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the source has more than 2^63 - 1 bytes");
    if (format == GB_IMAGE_RAW)
        return plan_raw(ask, length, ret, err);
    if (length < n)
        r = cut_off(format, length, &why);
    else if (format == GB_IMAGE_NPY)
        r = plan_npy(head, n, length, ret, &why);
    else
        r = plan_safetensors(ask, head, n, length, ret, &why);
    return r < 0 ? refused(ask, &why, err) : 0;
}

void gb_image_done(struct gb_image *image) {
    gb_table_unref(image->table);
    image->table = NULL;
}

/* --- memory and file ---------------------------------------------------------------------------------------------- */

uint64_t gb_image_run(const struct gb_image *image, uint64_t at, bool *ret_gap, uint64_t *ret_file) {
    *ret_gap = false;
    if (image->table) {
        *ret_file = gb_table_before(image->table, at);
        return gb_table_run(image->table, at, ret_gap);
    }
    *ret_file = image->skip + at;
    return image->open ? UINT64_MAX : image->bytes - at;
}

int gb_image_too_short(const struct gb_image *image, uint64_t length, struct gb_error *err) {
    return gb_error_set(err, GB_ERR_SHAPE_MISMATCH, "%s %llu bytes, and the source ends after %llu",
                        image->format == GB_IMAGE_RAW ? "dtype and shape make"
                        : image->table                ? "the safetensors file has, as its header says,"
                                                      : "the file has, as its header says,",
                        (unsigned long long)image->file_bytes, (unsigned long long)length);
}

int gb_image_too_long(const struct gb_image *image, struct gb_error *err) {
    return gb_error_set(err, GB_ERR_SHAPE_MISMATCH, "%s %llu bytes, and the source has more",
                        image->format == GB_IMAGE_RAW ? "dtype and shape make" : "the file has, as its header says,",
                        (unsigned long long)image->file_bytes);
}
