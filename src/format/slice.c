/* The text of a slice, read against a shape: what it selects, and the runs of bytes in which that lies. Pure. */
#include "format/slice.h"

#include <string.h>

#include "base/text.h"

#define ELLIPSIS "..."

struct number {
    bool given;
    bool negative;
    uint64_t value; /* the largest number when 64 bits do not suffice */
};

enum item_kind { ITEM_INDEX, ITEM_RANGE, ITEM_ELLIPSIS };

struct item {
    enum item_kind kind;
    const char *text;
    size_t len;
    struct number start; /* the index */
    struct number stop;
    struct number step;
};

struct items {
    unsigned count;
    struct item item[GB_DIMS_MAX + 1]; /* an index for each axis, and one "..." */
};

/* --- reading ------------------------------------------------------------------------------------------------------ */

static int malformed(const struct item *item, const char *why, struct gb_error *err) {
    char quoted[GB_WORD_QUOTE_SIZE];

    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                        "\"%s\" in the slice %s; a slice is written like \"0:16,3,:\", as numpy's basic indexing",
                        gb_word_quote(item->text, item->len, quoted), why);
}

static void trim(const char **text, size_t *len) {
    while (*len > 0 && (*text)[*len - 1] == ' ')
        (*len)--;
    while (*len > 0 && (*text)[0] == ' ') {
        (*text)++;
        (*len)--;
    }
}

/* An empty text is a number that is not given. */
static int read_number(const struct item *item, const char *text, size_t len, struct number *ret,
                       struct gb_error *err) {
    enum gb_parse r;

    trim(&text, &len);
    *ret = (struct number){.given = len > 0};
    if (len == 0)
        return 0;
    ret->negative = text[0] == '-';
    if (text[0] == '-' || text[0] == '+') {
        text++;
        len--;
    }
    r = gb_parse_u64(text, len, &ret->value);
    if (r == GB_PARSE_OVERFLOW)
        ret->value = UINT64_MAX;
    else if (r != GB_PARSE_OK)
        return malformed(item, "is neither an index nor a range", err);
    ret->negative = ret->negative && ret->value > 0;
    return 0;
}

static int read_range(struct item *item, const char *colon, struct gb_error *err) {
    const char *end = item->text + item->len;
    const char *second = memchr(colon + 1, ':', (size_t)(end - colon - 1));
    const char *stop_end = second ? second : end;

    item->kind = ITEM_RANGE;
    if (read_number(item, item->text, (size_t)(colon - item->text), &item->start, err) < 0 ||
        read_number(item, colon + 1, (size_t)(stop_end - colon - 1), &item->stop, err) < 0)
        return -1;
    if (second && read_number(item, second + 1, (size_t)(end - second - 1), &item->step, err) < 0)
        return -1;
    if (item->step.given && item->step.value == 0)
        return malformed(item, "has a step of zero", err);
    if (item->step.negative)
        return malformed(item, "has a negative step: take it forwards and turn it round yourself", err);
    if (!item->step.given)
        item->step.value = 1;
    return 0;
}

static int read_item(struct item *item, struct gb_error *err) {
    const char *colon;

    trim(&item->text, &item->len);
    if (item->len == 0)
        return malformed(item, "is empty; a whole axis is \":\"", err);
    if (item->len == strlen(ELLIPSIS) && memcmp(item->text, ELLIPSIS, item->len) == 0) {
        item->kind = ITEM_ELLIPSIS;
        return 0;
    }
    colon = memchr(item->text, ':', item->len);
    if (colon)
        return read_range(item, colon, err);
    item->kind = ITEM_INDEX;
    return read_number(item, item->text, item->len, &item->start, err);
}

static int too_many(const struct gb_shape *shape, struct gb_error *err) {
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the slice has more indices than the buffer's %u dimensions",
                        shape->dims);
}

static int read_items(const char *text, size_t len, const struct gb_shape *shape, struct items *items,
                      struct gb_error *err) {
    const char *end = text + len;
    bool ellipsis = false;

    items->count = 0;
    do {
        const char *comma = memchr(text, ',', (size_t)(end - text));
        struct item item = {.text = text, .len = (size_t)((comma ? comma : end) - text)};

        if (items->count - ellipsis > shape->dims || items->count > GB_DIMS_MAX)
            return too_many(shape, err);
        if (read_item(&item, err) < 0)
            return -1;
        if (item.kind == ITEM_ELLIPSIS && ellipsis)
            return malformed(&item, "is there twice", err);
        ellipsis = ellipsis || item.kind == ITEM_ELLIPSIS;
        items->item[items->count++] = item;
        text = comma ? comma + 1 : end;
    } while (text < end);
    return items->count - ellipsis > shape->dims ? too_many(shape, err) : 0;
}

/* --- picking ------------------------------------------------------------------------------------------------------ */

/* The state from axis to axis. */
struct picked {
    struct gb_shape shape;
    uint64_t first[GB_DIMS_MAX];
    uint64_t count[GB_DIMS_MAX];
    uint64_t step[GB_DIMS_MAX];
    unsigned axes;
};

static uint64_t bound(const struct number *n, uint64_t otherwise, uint64_t dim) {
    if (!n->given)
        return otherwise;
    if (n->negative)
        return n->value < dim ? dim - n->value : 0;
    return n->value < dim ? n->value : dim;
}

static int pick_index(const struct item *item, uint64_t dim, struct picked *p, struct gb_error *err) {
    const struct number *n = &item->start;
    char quoted[GB_WORD_QUOTE_SIZE];

    if (n->negative ? n->value > dim : n->value >= dim)
        return gb_error_set(err, GB_ERR_RANGE_NOT_SATISFIABLE,
                            "the index %s is beyond axis %u, which has %llu elements",
                            gb_word_quote(item->text, item->len, quoted), p->axes, (unsigned long long)dim);
    p->first[p->axes] = n->negative ? dim - n->value : n->value;
    p->count[p->axes] = 1;
    p->step[p->axes++] = 1;
    return 0;
}

static void pick_range(const struct item *item, uint64_t dim, struct picked *p) {
    uint64_t start = bound(&item->start, 0, dim);
    uint64_t stop = bound(&item->stop, dim, dim);
    uint64_t count = stop > start ? (stop - start - 1) / item->step.value + 1 : 0;

    p->first[p->axes] = start;
    p->count[p->axes] = count;
    p->step[p->axes++] = item->step.value;
    p->shape.dim[p->shape.dims++] = count;
}

static int pick(const struct items *items, const struct gb_shape *shape, struct picked *p, struct gb_error *err) {
    const struct item whole = {.kind = ITEM_RANGE, .step = {.value = 1}};
    unsigned left = items->count; /* axes that remain named */
    unsigned i;

    for (i = 0; i < items->count; i++)
        left -= items->item[i].kind == ITEM_ELLIPSIS;
    for (i = 0; i < items->count; i++) {
        const struct item *item = &items->item[i];

        if (item->kind == ITEM_ELLIPSIS) {
            while (p->axes + left < shape->dims)
                pick_range(&whole, shape->dim[p->axes], p);
            continue;
        }
        left--;
        if (item->kind == ITEM_RANGE)
            pick_range(item, shape->dim[p->axes], p);
        else if (pick_index(item, shape->dim[p->axes], p, err) < 0)
            return -1;
    }
    while (p->axes < shape->dims)
        pick_range(&whole, shape->dim[p->axes], p);
    return 0;
}

/* Where the first element lies, and the axes to the others. Returns false if there is no element. */
static bool find_axes(const struct gb_shape *shape, uint64_t width, const struct picked *p, struct gb_axis *axis,
                      uint64_t *ret_offset) {
    uint64_t offset = 0;
    unsigned i;

    for (i = 0; i < shape->dims; i++) {
        if (p->count[i] == 0)
            return false;
    }
    gb_view_axes(shape, width, axis);
    for (i = 0; i < shape->dims; i++) {
        offset += p->first[i] * axis[i].stride;
        axis[i].count = p->count[i];
        axis[i].stride = p->count[i] > 1 ? p->step[i] * axis[i].stride : 0;
    }
    *ret_offset = offset;
    return true;
}

int gb_slice_parse(const char *text, size_t len, const struct gb_shape *shape, enum gb_dtype dtype,
                   struct gb_shape *ret_shape, struct gb_view *ret_view, struct gb_view *ret_fortran,
                   struct gb_error *err) {
    size_t width = gb_dtype_bytes(dtype);
    struct picked picked = {.axes = 0};
    struct gb_axis axis[GB_DIMS_MAX];
    struct items items;
    uint64_t offset;
    bool any;

    if (read_items(text, len, shape, &items, err) < 0 || pick(&items, shape, &picked, err) < 0)
        return -1;
    any = find_axes(shape, width, &picked, axis, &offset);
    *ret_view = any ? gb_view_make(offset, width, axis, shape->dims) : gb_view_plain(0, 0);
    if (ret_fortran)
        *ret_fortran = any ? gb_view_fortran(offset, width, axis, shape->dims) : gb_view_plain(0, 0);
    *ret_shape = picked.shape;
    return 0;
}
