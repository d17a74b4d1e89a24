/* Picks the buffers of one file, and makes its header. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "api/auth.h"
#include "api/context.h"
#include "api/request/label.h"
#include "api/request/query.h"
#include "api/request/tensor_names.h"
#include "api/transfer/tensors_select.h"
#include "base/text.h"

static int no_memory(struct gb_error *err) {
    return gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
}

static int too_many(struct gb_error *err) {
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                        "more than %d buffers are asked for, the most of one file; take some of them by names, prefix "
                        "or label",
                        GB_SAFETENSORS_TENSORS_MAX);
}

/* --- selecting ---------------------------------------------------------------------------------------------------- */

struct selection {
    struct gb_name prefix; /* "": any */
    struct gb_name reach;  /* the token's own; "": any */
    struct gb_label_query label;
    struct gb_name *names;
    size_t count;
    int64_t last_id;
};

static int visit(void *arg, const struct gb_buffer_rec *rec, struct gb_error *err) {
    struct selection *s = arg;

    s->last_id = rec->id;
    if (strncmp(rec->name.s, s->prefix.s, strlen(s->prefix.s)) != 0 || !gb_api_has_prefix(&s->reach, rec->name.s) ||
        !gb_label_query_fits(&s->label, gb_labels_text(rec->labels)))
        return 0;
    if (s->count == GB_SAFETENSORS_TENSORS_MAX)
        return too_many(err);
    s->names[s->count++] = rec->name;
    return 0;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct gb_name *)a)->s, ((const struct gb_name *)b)->s);
}

/* Finds all buffers that match, by name. */
static int select_matching(const struct gb_http_request *request, const struct gb_name *session, struct selection *s,
                           struct gb_error *err) {
    struct gb_page page = {.limit = GB_PAGE_LIMIT_MAX, .more = true};
    int r = 0;

    if (gb_query_name(request, "prefix", &s->prefix, err) < 0 || gb_label_query_read(request, &s->label, err) < 0)
        return -1;
    while (page.more && r == 0) {
        page.after = s->last_id;
        r = gb_buffer_list(gb_api_of(request)->core, session, &page, visit, s, err);
    }
    if (s->count > 0) /* else there is no array */
        qsort(s->names, s->count, sizeof(*s->names), by_name);
    return r;
}

static int check_twice(const struct selection *s, struct gb_error *err) {
    struct gb_name *sorted = malloc((s->count + 1) * sizeof(*sorted));
    size_t i;
    int r = 0;

    if (!sorted)
        return no_memory(err);
    if (s->count > 0)
        memcpy(sorted, s->names, s->count * sizeof(*sorted));
    qsort(sorted, s->count, sizeof(*sorted), by_name);
    for (i = 1; i < s->count && r == 0; i++) {
        if (by_name(&sorted[i - 1], &sorted[i]) == 0)
            r = gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "names has \"%s\" twice", sorted[i].s);
    }
    free(sorted);
    return r;
}

static int select_named(const struct gb_http_request *request, struct selection *s, struct gb_error *err) {
    const struct gb_http_text *names = gb_http_query(request, "names");
    const char *end = names->s + names->len;
    const char *at = names->s;

    if (gb_http_query(request, "prefix") || gb_http_query(request, "label"))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "give names, or prefix and label: not both");
    while (at <= end) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        size_t n = (size_t)((comma ? comma : end) - at);

        if (s->count == GB_SAFETENSORS_TENSORS_MAX)
            return too_many(err);
        if (gb_name_parse("buffer name in names", at, n, &s->names[s->count], err) < 0 ||
            gb_api_reach(request, s->names[s->count++].s, err) < 0)
            return -1;
        at += n + 1;
    }
    return check_twice(s, err);
}

int gb_tensors_select(const struct gb_http_request *request, const struct gb_name *session, struct gb_name **ret,
                      size_t *ret_count, bool *ret_named, struct gb_error *err) {
    struct selection s = {.names = malloc(GB_SAFETENSORS_TENSORS_MAX * sizeof(*s.names))};
    bool named = gb_http_query(request, "names") != NULL;
    int r;

    if (!s.names)
        return no_memory(err);
    r = gb_api_prefix(request, &s.reach, err);
    if (r == 0)
        r = named ? select_named(request, &s, err) : select_matching(request, session, &s, err);
    if (r < 0) {
        free(s.names);
        return -1;
    }
    *ret = s.names;
    *ret_count = s.count;
    *ret_named = named;
    return 0;
}

/* --- the header --------------------------------------------------------------------------------------------------- */

struct entry {
    char *tensor;
    size_t index;
    size_t width;
};

static int by_width(const void *a, const void *b) {
    const struct entry *x = a;
    const struct entry *y = b;

    if (x->width != y->width)
        return x->width > y->width ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

static int by_tensor(const void *a, const void *b) {
    return strcmp(((const struct entry *)a)->tensor, ((const struct entry *)b)->tensor);
}

static int read_entries(const struct gb_download_group *group, struct entry *entries, struct gb_error *err) {
    char name[GB_LABELS_MAX];
    size_t i;

    for (i = 0; i < gb_download_group_count(group); i++) {
        const struct gb_buffer_rec *rec = gb_download_group_record(group, i);

        entries[i].index = i;
        entries[i].width = gb_dtype_bytes(rec->dtype);
        entries[i].tensor = strdup(gb_tensor_name(rec, name));
        if (!entries[i].tensor)
            return no_memory(err);
        if (!gb_dtype_safetensors(rec->dtype))
            return gb_error_set(err, GB_ERR_NOT_ACCEPTABLE,
                                "\"%s\" is %s, which safetensors has not; leave it out and ask for its data as raw",
                                rec->name.s, gb_dtype_name(rec->dtype));
    }
    return 0;
}

static int check_tensors(const struct gb_download_group *group, struct entry *entries, struct gb_error *err) {
    size_t count = gb_download_group_count(group);
    size_t i;

    qsort(entries, count, sizeof(*entries), by_tensor);
    for (i = 0; i < count; i++) {
        const struct gb_name *name = &gb_download_group_record(group, entries[i].index)->name;

        if (strcmp(entries[i].tensor, GB_SAFETENSORS_METADATA) == 0)
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the tensor of \"%s\" cannot be called %s", name->s,
                                GB_SAFETENSORS_METADATA);
        if (i > 0 && by_tensor(&entries[i - 1], &entries[i]) == 0)
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                                "\"%s\" and \"%s\" would both be the tensor \"%.80s\" (label " GB_TENSOR_LABEL
                                "); leave one of them out",
                                gb_download_group_record(group, entries[i - 1].index)->name.s, name->s,
                                entries[i].tensor);
    }
    qsort(entries, count, sizeof(*entries), by_width);
    return 0;
}

static int write_header(const struct gb_download_group *group, const struct entry *entries, struct gb_json_writer *out,
                        size_t *order, uint64_t *ret_bytes, struct gb_error *err) {
    uint64_t at = 0;
    uint64_t end;
    size_t i;

    gb_safetensors_open(out);
    for (i = 0; i < gb_download_group_count(group); i++) {
        const struct gb_buffer_rec *rec = gb_download_group_record(group, entries[i].index);

        if (!gb_add_u64(at, rec->bytes, &end) || end > INT64_MAX / 2)
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the buffers have more bytes than a file can have");
        gb_safetensors_add(out, entries[i].tensor, rec->dtype, &rec->shape, at, end);
        order[i] = entries[i].index;
        at = end;
    }
    if (gb_safetensors_close(out, err) < 0)
        return -1;
    if (out->used > GB_SAFETENSORS_HEADER_MAX)
        return gb_error_set(
            err, GB_ERR_INVALID_ARGUMENT,
            "the file's header would have %zu bytes, more than the %u that are read; take fewer buffers", out->used,
            GB_SAFETENSORS_HEADER_MAX);
    *ret_bytes = at;
    return 0;
}

int gb_tensors_header(const struct gb_download_group *group, struct gb_json_writer *out, size_t **ret_order,
                      uint64_t *ret_bytes, struct gb_error *err) {
    size_t count = gb_download_group_count(group);
    struct entry *entries = calloc(count + 1, sizeof(*entries));
    size_t *order = calloc(count + 1, sizeof(*order));
    size_t i;
    int r = entries && order ? 0 : no_memory(err);

    if (r == 0)
        r = read_entries(group, entries, err);
    if (r == 0)
        r = check_tensors(group, entries, err);
    if (r == 0)
        r = write_header(group, entries, out, order, ret_bytes, err);
    for (i = 0; entries && i < count; i++)
        free(entries[i].tensor);
    free(entries);
    if (r < 0) {
        free(order);
        return -1;
    }
    *ret_order = order;
    return 0;
}
