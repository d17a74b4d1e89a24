/* A table of tensors: the header of a safetensors file, and where its tensors lie in a buffer's memory. */
#include "format/table.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

struct alias {
    const char *name; /* in alias_text */
    size_t len;
    uint32_t of;
};

struct gb_table {
    _Atomic unsigned refs;
    struct gb_safetensors file;
    uint64_t *at;      /* of each tensor, in memory */
    uint32_t *by_name; /* indices, in the order of the names */
    char *head;        /* length and header, as they came */
    size_t head_n;
    uint64_t data_at; /* where the first tensor begins in memory */
    uint64_t bytes;
    struct alias *aliases; /* in the order of their names */
    size_t alias_count;
    char *alias_text;
};

/* --- making ------------------------------------------------------------------------------------------------------- */

static uint64_t aligned(uint64_t at) {
    return (at + GB_TABLE_ALIGN - 1) / GB_TABLE_ALIGN * GB_TABLE_ALIGN;
}

static int compare(const char *a, size_t a_len, const char *b, size_t b_len) {
    int r = memcmp(a, b, a_len < b_len ? a_len : b_len);

    return r != 0 ? r : (a_len > b_len) - (a_len < b_len);
}

static int by_name(const void *a, const void *b, void *tensors) {
    const struct gb_safetensor *x = (const struct gb_safetensor *)tensors + *(const uint32_t *)a;
    const struct gb_safetensor *y = (const struct gb_safetensor *)tensors + *(const uint32_t *)b;

    return compare(x->name, x->name_len, y->name, y->name_len);
}

static int by_alias(const void *a, const void *b) {
    const struct alias *x = a;
    const struct alias *y = b;

    return compare(x->name, x->len, y->name, y->len);
}

/* The index of the tensor with that very name, or -1. */
static int64_t tensor_named(const struct gb_table *t, const char *name, size_t len) {
    size_t from = 0;
    size_t to = t->file.count;

    while (from < to) {
        size_t middle = from + (to - from) / 2;
        const struct gb_safetensor *tensor = &t->file.tensors[t->by_name[middle]];
        int r = compare(tensor->name, tensor->name_len, name, len);

        if (r == 0)
            return t->by_name[middle];
        if (r < 0)
            from = middle + 1;
        else
            to = middle;
    }
    return -1;
}

/* The bytes of all tensors fit into 63 bits, and there are at most GB_SAFETENSORS_TENSORS_MAX gaps. */
static int place(struct gb_table *t, struct gb_error *err) {
    uint64_t at = t->data_at = aligned(t->head_n);
    size_t i;

    t->bytes = t->head_n; /* of a file without bytes of tensors */
    if (t->file.bytes > INT64_MAX / 2)
        return gb_error_set(err, GB_ERR_UNSUPPORTED_ARRAY,
                            "the tensors of the safetensors header have %llu bytes, more "
                            "than a buffer can have",
                            (unsigned long long)t->file.bytes);
    for (i = 0; i < t->file.count; i++) {
        uint64_t bytes = t->file.tensors[i].end - t->file.tensors[i].begin;

        t->by_name[i] = (uint32_t)i;
        t->at[i] = bytes > 0 ? at : t->bytes; /* no bytes, no gap */
        if (bytes == 0)
            continue;
        t->bytes = at + bytes;
        at = aligned(t->bytes);
    }
    qsort_r(t->by_name, t->file.count, sizeof(*t->by_name), by_name, t->file.tensors);
    return 0;
}

static int add_alias(struct gb_table *t, size_t *room, const struct gb_json_word *name, int64_t of,
                     struct gb_error *err) {
    struct alias *bigger;

    if (t->alias_count == *room) {
        *room = *room > 0 ? *room * 2 : 4;
        bigger = realloc(t->aliases, *room * sizeof(*bigger));
        if (!bigger)
            return gb_error_memory(err, "table");
        t->aliases = bigger;
    }
    t->aliases[t->alias_count++] = (struct alias){name->s, name->len, (uint32_t)of};
    return 0;
}

/* A member of the metadata that maps another name to a tensor's is an alias: so safetensors' save_model writes the
 * names of tied weights, whose bytes the file has once. The parser has checked the metadata. */
static int read_aliases(struct gb_table *t, struct gb_error *err) {
    size_t n;
    const char *metadata = gb_table_metadata(t, &n);
    struct gb_json_text text = {.begin = metadata, .at = metadata, .end = metadata + n, .err = err};
    struct gb_json_word name;
    struct gb_json_word value;
    bool first = true;
    bool failed = false;
    size_t room = 0;
    int64_t of;

    if (n <= 2)
        return 0;
    text.out = t->alias_text = malloc(n);
    if (!text.out)
        return gb_error_memory(err, "table");
    gb_json_text_accept(&text, '{');
    while (gb_json_text_more(&text, '}', &first, &failed)) {
        if (gb_json_text_string(&text, &name) < 0 || gb_json_text_expect(&text, ':', "a colon is missing") < 0 ||
            gb_json_text_string(&text, &value) < 0)
            return -1;
        of = tensor_named(t, value.s, value.len);
        if (of < 0 || name.len == 0 || tensor_named(t, name.s, name.len) >= 0)
            text.out = (char *)(uintptr_t)name.s;
        else if (add_alias(t, &room, &name, of, err) < 0)
            return -1;
        else
            text.out = (char *)(uintptr_t)value.s;
    }
    if (t->alias_count > 0)
        qsort(t->aliases, t->alias_count, sizeof(*t->aliases), by_alias);
    return failed ? -1 : 0;
}

struct gb_table *gb_table_take(struct gb_safetensors *file, const char *head, size_t n, struct gb_error *err) {
    struct gb_table *t = calloc(1, sizeof(*t));

    if (!t) {
        gb_safetensors_done(file);
        gb_error_memory(err, "table");
        return NULL;
    }
    atomic_init(&t->refs, 1);
    t->file = *file;
    t->head_n = n;
    t->at = calloc(t->file.count + 1, sizeof(*t->at));
    t->by_name = calloc(t->file.count + 1, sizeof(*t->by_name));
    t->head = malloc(n);
    if (t->at && t->by_name && t->head) {
        memcpy(t->head, head, n);
        if (place(t, err) == 0 && read_aliases(t, err) == 0)
            return t;
    } else {
        gb_error_memory(err, "table");
    }
    gb_table_unref(t);
    return NULL;
}

struct gb_table *gb_table_new(const char *head, size_t n, struct gb_error *err) {
    struct gb_safetensors file;

    if (gb_safetensors_parse(head + GB_SAFETENSORS_LENGTH, n - GB_SAFETENSORS_LENGTH, &file, err) < 0)
        return NULL;
    return gb_table_take(&file, head, n, err);
}

struct gb_table *gb_table_ref(struct gb_table *table) {
    atomic_fetch_add(&table->refs, 1);
    return table;
}

void gb_table_unref(struct gb_table *table) {
    if (!table || atomic_fetch_sub(&table->refs, 1) > 1)
        return;
    gb_safetensors_done(&table->file);
    free(table->aliases);
    free(table->alias_text);
    free(table->at);
    free(table->by_name);
    free(table->head);
    free(table);
}

/* --- looking ------------------------------------------------------------------------------------------------------ */

size_t gb_table_head(const struct gb_table *table, const char **ret_text) {
    *ret_text = table->head;
    return table->head_n;
}

uint64_t gb_table_head_room(const struct gb_table *table) {
    return table->data_at < table->bytes ? table->data_at : table->bytes;
}

size_t gb_table_count(const struct gb_table *table) {
    return table->file.count;
}

uint64_t gb_table_bytes(const struct gb_table *table) {
    return table->bytes;
}

uint64_t gb_table_file_bytes(const struct gb_table *table) {
    return table->head_n + table->file.bytes;
}

size_t gb_table_size(const struct gb_table *table) {
    return sizeof(*table) + 2 * table->head_n +
           table->file.count * (sizeof(*table->file.tensors) + sizeof(*table->at) + sizeof(*table->by_name)) +
           (table->alias_text ? table->file.metadata_n : 0) + table->alias_count * sizeof(*table->aliases);
}

const struct gb_safetensor *gb_table_tensor(const struct gb_table *table, size_t i, uint64_t *ret_at) {
    if (ret_at)
        *ret_at = table->at[i];
    return &table->file.tensors[i];
}

const char *gb_table_metadata(const struct gb_table *table, size_t *ret_n) {
    if (table->file.metadata_n < 2 || table->head[GB_SAFETENSORS_LENGTH + table->file.metadata_at] != '{') {
        *ret_n = 2;
        return "{}";
    }
    *ret_n = table->file.metadata_n;
    return table->head + GB_SAFETENSORS_LENGTH + table->file.metadata_at;
}

size_t gb_table_aliases(const struct gb_table *table) {
    return table->alias_count;
}

const char *gb_table_alias(const struct gb_table *table, size_t i, size_t *ret_len, size_t *ret_of) {
    *ret_len = table->aliases[i].len;
    *ret_of = table->aliases[i].of;
    return table->aliases[i].name;
}

int64_t gb_table_find(const struct gb_table *table, const char *name, size_t len, struct gb_error *err) {
    const struct alias wanted = {.name = name, .len = len};
    char quoted[GB_WORD_QUOTE_SIZE];
    const struct alias *alias;
    int64_t i = tensor_named(table, name, len);

    if (i >= 0)
        return i;
    alias = table->alias_count > 0
                ? bsearch(&wanted, table->aliases, table->alias_count, sizeof(*table->aliases), by_alias)
                : NULL;
    if (alias)
        return alias->of;
    gb_error_set(err, GB_ERR_TENSOR_NOT_FOUND, "the buffer has no tensor named \"%s\"; GET .../tensors lists its %zu",
                 gb_word_quote(name, len, quoted), table->file.count);
    return -1;
}

/* --- memory and file ---------------------------------------------------------------------------------------------- */

/* The last tensor whose bytes begin at or before that place of the file's data. Of several that begin there the last,
 * which alone may have bytes. */
static size_t tensor_at(const struct gb_table *t, uint64_t data) {
    size_t from = 0;
    size_t to = t->file.count;

    while (to - from > 1) {
        size_t middle = from + (to - from) / 2;

        if (t->file.tensors[middle].begin <= data)
            from = middle;
        else
            to = middle;
    }
    return from;
}

uint64_t gb_table_stretch(const struct gb_table *table, uint64_t first, uint64_t length, uint64_t *ret_at) {
    const struct gb_safetensor *tensor;
    uint64_t have;
    size_t i;

    if (first < table->head_n) {
        *ret_at = first;
        have = table->head_n - first;
    } else {
        i = tensor_at(table, first - table->head_n);
        tensor = &table->file.tensors[i];
        *ret_at = table->at[i] + (first - table->head_n - tensor->begin);
        have = tensor->end - (first - table->head_n);
    }
    return have < length ? have : length;
}

/* The last tensor that begins at or before that place of the memory. */
static size_t tensor_in_memory(const struct gb_table *table, uint64_t at) {
    size_t from = 0;
    size_t to = table->file.count;

    while (to - from > 1) {
        size_t middle = from + (to - from) / 2;

        if (table->at[middle] <= at)
            from = middle;
        else
            to = middle;
    }
    return from;
}

uint64_t gb_table_run(const struct gb_table *table, uint64_t at, bool *ret_gap) {
    uint64_t end;
    size_t i;

    *ret_gap = at >= table->head_n;
    if (at < table->data_at)
        return (*ret_gap ? table->data_at : table->head_n) - at;
    i = tensor_in_memory(table, at);
    end = table->at[i] + (table->file.tensors[i].end - table->file.tensors[i].begin);
    *ret_gap = at >= end;
    return *ret_gap ? aligned(end) - at : end - at;
}

uint64_t gb_table_file_at(const struct gb_table *table, uint64_t at) {
    const struct gb_safetensor *tensor;
    uint64_t within;
    size_t i;

    if (at < table->data_at)
        return at < table->head_n ? at : table->head_n;
    i = tensor_in_memory(table, at);
    tensor = &table->file.tensors[i];
    within = at - table->at[i];
    return table->head_n + (within < tensor->end - tensor->begin ? tensor->begin + within : tensor->end);
}
