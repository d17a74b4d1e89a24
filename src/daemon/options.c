#include "daemon/options.h"

#include <stdlib.h>
#include <string.h>

#include "base/conf.h"
#include "base/parse.h"

const struct gb_option_spec gb_option_specs[GB_OPTION_IDS] = {
#define GB_OPTION(type, field, name, argument, fallback, permitted, min, max, help)                                    \
    {name, argument, fallback, permitted, help, offsetof(struct gb_options, field), min, max, GB_OPTION_##type},
#include "daemon/options.def"
#undef GB_OPTION
};

static void list_done(struct gb_text_list *list) {
    size_t i;

    for (i = 0; i < list->count; i++)
        free(list->items[i]);
    free(list->items);
    *list = (struct gb_text_list){0};
}

void gb_options_done(struct gb_options *options) {
    size_t i;

    for (i = 0; i < GB_OPTION_IDS; i++) {
        void *value = (char *)options + gb_option_specs[i].at;

        switch (gb_option_specs[i].type) {
        case GB_OPTION_TEXT:
        case GB_OPTION_PATH:
        case GB_OPTION_CHOICE:
            free(*(char **)value);
            break;
        case GB_OPTION_LIST:
        case GB_OPTION_PATHS:
            list_done(value);
            break;
        default:
            break;
        }
    }
    *options = (struct gb_options){0};
}

const struct gb_option_spec *gb_option_find(const char *name, size_t len) {
    size_t i;

    for (i = 0; i < GB_OPTION_IDS; i++)
        if (strlen(gb_option_specs[i].name) == len && memcmp(gb_option_specs[i].name, name, len) == 0)
            return &gb_option_specs[i];
    return NULL;
}

char *gb_option_hint(const char *name, size_t len, const char *before, char text[GB_NEAREST_HINT]) {
    struct gb_nearest nearest;
    size_t i;

    gb_nearest_begin(&nearest, name, len);
    for (i = 0; i < GB_OPTION_IDS; i++)
        gb_nearest_try(&nearest, gb_option_specs[i].name);
    return gb_nearest_hint(&nearest, before, text);
}

static int no_memory(struct gb_error *err) {
    return gb_error_set(err, GB_ERR_INTERNAL, "out of memory while reading options");
}

static int wrong(const char *where, const char *text, const char *permitted, struct gb_error *err) {
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%s: \"%.64s\" is not permitted; permitted: %s", where, text,
                        permitted);
}

static int wrong_number(const struct gb_option_spec *spec, const char *where, const char *text, struct gb_error *err) {
    const char *unit = spec->type == GB_OPTION_SIZE      ? " bytes (suffixes K, M, G, T)"
                       : spec->type == GB_OPTION_SECONDS ? " seconds"
                                                         : "";
    char permitted[128];

    if (spec->max == GB_UNLIMITED)
        snprintf(permitted, sizeof permitted, "a whole number from %llu%s, or unlimited", (unsigned long long)spec->min,
                 unit);
    else
        snprintf(permitted, sizeof permitted, "a whole number from %llu to %llu%s", (unsigned long long)spec->min,
                 (unsigned long long)spec->max, unit);
    return wrong(where, text, permitted, err);
}

static int set_number(const struct gb_option_spec *spec, uint64_t *value, const char *where, const char *text,
                      struct gb_error *err) {
    uint64_t number = 0;
    enum gb_parse parsed;

    if (spec->max == GB_UNLIMITED && strcmp(text, "unlimited") == 0) {
        *value = GB_UNLIMITED;
        return 0;
    }
    if (spec->type == GB_OPTION_SIZE)
        parsed = gb_parse_size(text, strlen(text), &number);
    else
        parsed = gb_parse_u64(text, strlen(text), &number);
    if (parsed != GB_PARSE_OK || number < spec->min || number > spec->max)
        return wrong_number(spec, where, text, err);
    *value = number;
    return 0;
}

static bool is_word_of(const char *words, const char *text) {
    size_t len = strlen(text);

    while (*words != '\0') {
        size_t n = strcspn(words, "|");

        if (n == len && memcmp(words, text, n) == 0)
            return true;
        words += n + (words[n] == '|');
    }
    return false;
}

static int set_text(char **value, const char *text, struct gb_error *err) {
    char *copy = strdup(text);

    if (copy == NULL)
        return no_memory(err);
    free(*value);
    *value = copy;
    return 0;
}

static int list_add(struct gb_text_list *list, const char *text, size_t len, struct gb_error *err) {
    char **items = realloc(list->items, (list->count + 1) * sizeof *items);

    if (items == NULL)
        return no_memory(err);
    list->items = items;
    items[list->count] = strndup(text, len);
    if (items[list->count] == NULL)
        return no_memory(err);
    list->count++;
    return 0;
}

/* Several values in one text are separated by commas or spaces: the environment has no other way. */
#define BETWEEN ", \t\r\n\v\f"

/* What a shell would have changed, and nothing did. Returns 0 or -1. */
static int check_written(const struct gb_option_spec *spec, const char *where, const char *text, struct gb_error *err) {
    bool list = spec->type == GB_OPTION_LIST || spec->type == GB_OPTION_PATHS;
    bool path = spec->type == GB_OPTION_PATH || spec->type == GB_OPTION_PATHS;
    size_t n;

    for (; *text != '\0'; text += n + (list && text[n] != '\0')) {
        const char *fault;

        n = list ? strcspn(text, BETWEEN) : strlen(text);
        fault = path ? gb_conf_path(text, n) : gb_conf_quotes(text, n);
        if (fault != NULL)
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%s: %.*s %s", where, n > 128 ? 128 : (int)n, text,
                                fault);
    }
    return 0;
}

static int set_list(struct gb_text_list *list, bool replace, const char *text, struct gb_error *err) {
    if (replace)
        list_done(list);
    while (*text != '\0') {
        size_t n = strcspn(text, BETWEEN);

        if (n > 0 && list_add(list, text, n, err) != 0)
            return -1;
        text += n + (text[n] != '\0');
    }
    return 0;
}

int gb_option_set(struct gb_options *options, const struct gb_option_spec *spec, enum gb_option_source source,
                  const char *where, const char *text, struct gb_error *err) {
    enum gb_option_source *had = &options->source[spec - gb_option_specs];
    void *value = (char *)options + spec->at;
    int rc = -1;

    if (check_written(spec, where, text, err) != 0)
        return -1;
    switch (spec->type) {
    case GB_OPTION_TEXT:
    case GB_OPTION_PATH:
        rc = *had > source ? 0 : set_text(value, text, err);
        break;
    case GB_OPTION_LIST:
    case GB_OPTION_PATHS:
        rc = *had > source ? 0 : set_list(value, *had < source, text, err);
        break;
    case GB_OPTION_CHOICE:
        if (!is_word_of(spec->permitted, text))
            return wrong(where, text, spec->permitted, err);
        rc = *had > source ? 0 : set_text(value, text, err);
        break;
    case GB_OPTION_SIZE:
    case GB_OPTION_COUNT:
    case GB_OPTION_SECONDS: {
        uint64_t number = 0;

        rc = set_number(spec, &number, where, text, err);
        if (rc == 0 && *had <= source)
            *(uint64_t *)value = number;
        break;
    }
    case GB_OPTION_FLAG: {
        bool flag;

        if (gb_parse_bool(text, strlen(text), &flag) != GB_PARSE_OK)
            return wrong(where, text, "true|false", err);
        if (*had <= source)
            *(bool *)value = flag;
        rc = 0;
        break;
    }
    }
    if (rc == 0 && *had < source)
        *had = source;
    return rc;
}
