#include "api/request/tensor_names.h"

#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool permitted(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

int gb_tensor_buffer(const char *prefix, const char *tensor, struct gb_name *ret, struct gb_error *err) {
    struct gb_name name = {""};
    size_t n = (size_t)snprintf(name.s, sizeof(name.s), "%s", prefix);

    if (n == 0 && !permitted(tensor[0]))
        name.s[n++] = 'x';
    for (; *tensor && n < GB_NAME_MAX; tensor++) {
        /* The first byte of a long character is replaced, the others are left out. */
        if (((unsigned char)*tensor & 0xc0) != 0x80)
            name.s[n++] = permitted(*tensor) || strchr("._-", *tensor) ? *tensor : '_';
    }
    name.s[n] = '\0';
    while (((unsigned char)*tensor & 0xc0) == 0x80)
        tensor++;
    if (*tensor)
        return gb_error_set(
            err, GB_ERR_INVALID_NAME,
            "the name of the tensor %.60s... is too long for a buffer%s, which has %d characters at most", name.s,
            prefix[0] ? " with that prefix" : "", GB_NAME_MAX);
    *ret = name;
    return 0;
}

const char *gb_tensor_name(const struct gb_buffer_rec *rec, char *out) {
    json_t *labels = NULL;
    const char *name = NULL;

    /* Most buffers have no labels, and reading JSON costs time. */
    if (strstr(gb_text_s(rec->labels), GB_TENSOR_LABEL))
        labels = json_loads(gb_text_s(rec->labels), 0, NULL);
    if (labels)
        name = json_string_value(json_object_get(labels, GB_TENSOR_LABEL));
    snprintf(out, GB_LABELS_MAX, "%s", name ? name : rec->name.s);
    json_decref(labels);
    return out;
}

static int dump(const json_t *labels, char out[GB_LABELS_MAX], const struct gb_name *buffer, struct gb_error *err) {
    size_t n = json_dumpb(labels, out, GB_LABELS_MAX - 1, JSON_COMPACT);

    if (n == 0 || n >= GB_LABELS_MAX)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "the labels of \"%s\" with its tensor's name would have more than %d bytes", buffer->s,
                            GB_LABELS_MAX - 1);
    out[n] = '\0';
    return 1;
}

int gb_tensor_labels(const char *old, const struct gb_name *buffer, const char *tensor, char out[GB_LABELS_MAX],
                     struct gb_error *err) {
    bool own = strcmp(buffer->s, tensor) == 0;
    const char *present;
    json_t *labels;
    int r;

    if (own && !strstr(old, GB_TENSOR_LABEL))
        return 0;
    labels = json_loads(old, 0, NULL);
    if (!labels)
        return gb_error_set(err, GB_ERR_SATURATED, "no memory for the labels; try again later");
    present = json_string_value(json_object_get(labels, GB_TENSOR_LABEL));
    if (own ? !present : present && strcmp(present, tensor) == 0)
        r = 0;
    else if (own ? json_object_del(labels, GB_TENSOR_LABEL) < 0
                 : json_object_set_new(labels, GB_TENSOR_LABEL, json_string(tensor)) < 0)
        r = gb_error_set(err, GB_ERR_SATURATED, "no memory for the labels; try again later");
    else
        r = dump(labels, out, buffer, err);
    json_decref(labels);
    return r;
}

/* --- of a whole file ---------------------------------------------------------------------------------------------- */

struct pair {
    const char *tensor;
    const struct gb_name *buffer;
};

static int by_buffer(const void *a, const void *b) {
    return strcmp(((const struct pair *)a)->buffer->s, ((const struct pair *)b)->buffer->s);
}

static int check_distinct(const struct gb_safetensors *file, const struct gb_name *names, struct gb_error *err) {
    struct pair *pairs = malloc((file->count + 1) * sizeof(*pairs));
    size_t i;
    int r = 0;

    if (!pairs)
        return gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
    for (i = 0; i < file->count; i++)
        pairs[i] = (struct pair){.tensor = file->tensors[i].name, .buffer = &names[i]};
    qsort(pairs, file->count, sizeof(*pairs), by_buffer);
    for (i = 1; i < file->count && r == 0; i++) {
        if (by_buffer(&pairs[i - 1], &pairs[i]) == 0)
            r = gb_error_set(err, GB_ERR_INVALID_NAME,
                             "the tensors \"%.80s\" and \"%.80s\" would both be the buffer \"%s\"; rename one of them",
                             pairs[i - 1].tensor, pairs[i].tensor, pairs[i].buffer->s);
    }
    free(pairs);
    return r;
}

int gb_tensors_names(const struct gb_safetensors *file, const char *prefix, struct gb_name **ret,
                     struct gb_error *err) {
    struct gb_name *names = calloc(file->count + 1, sizeof(*names));
    size_t i;
    int r = 0;

    if (!names)
        return gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
    for (i = 0; i < file->count && r == 0; i++)
        r = gb_tensor_buffer(prefix, file->tensors[i].name, &names[i], err);
    if (r < 0 || check_distinct(file, names, err) < 0) {
        free(names);
        return -1;
    }
    *ret = names;
    return 0;
}
