/* Options by the list in options.def: the command line, the file and the environment are read into one struct, each
 * value with its source. Errors name the option, what is permitted, and the nearest word. */
#include "daemon/options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

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

/* "; is --listen meant?" in text if an option is called nearly name[0..len), else "". before: "--", or "" in a file.
 * Returns text. */
static char *option_hint(const char *name, size_t len, const char *before, char text[GB_NEAREST_HINT]) {
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
        snprintf(permitted, sizeof(permitted), "a whole number from %llu%s, or unlimited",
                 (unsigned long long)spec->min, unit);
    else
        snprintf(permitted, sizeof(permitted), "a whole number from %llu to %llu%s", (unsigned long long)spec->min,
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

    if (!copy)
        return no_memory(err);
    free(*value);
    *value = copy;
    return 0;
}

static int list_add(struct gb_text_list *list, const char *text, size_t len, struct gb_error *err) {
    char **items = realloc(list->items, (list->count + 1) * sizeof(*items));

    if (!items)
        return no_memory(err);
    list->items = items;
    items[list->count] = strndup(text, len);
    if (!items[list->count])
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
        if (fault)
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
    int r = -1;

    if (check_written(spec, where, text, err) != 0)
        return -1;
    switch (spec->type) {
    case GB_OPTION_TEXT:
    case GB_OPTION_PATH:
        r = *had > source ? 0 : set_text(value, text, err);
        break;
    case GB_OPTION_LIST:
    case GB_OPTION_PATHS:
        r = *had > source ? 0 : set_list(value, *had < source, text, err);
        break;
    case GB_OPTION_CHOICE:
        if (!is_word_of(spec->permitted, text))
            return wrong(where, text, spec->permitted, err);
        r = *had > source ? 0 : set_text(value, text, err);
        break;
    case GB_OPTION_SIZE:
    case GB_OPTION_COUNT:
    case GB_OPTION_SECONDS: {
        uint64_t number = 0;

        r = set_number(spec, &number, where, text, err);
        if (r == 0 && *had <= source)
            *(uint64_t *)value = number;
        break;
    }
    case GB_OPTION_FLAG: {
        bool flag;

        if (gb_parse_bool(text, strlen(text), &flag) != GB_PARSE_OK)
            return wrong(where, text, "true|false", err);
        if (*had <= source)
            *(bool *)value = flag;
        r = 0;
        break;
    }
    }
    if (r == 0 && *had < source)
        *had = source;
    return r;
}

/* --- the file ----------------------------------------------------------------------------------------------------- */

int gb_options_line(struct gb_options *options, const char *path, unsigned number, char *line,
                    const struct gb_option_spec **ret_spec, struct gb_error *err) {
    const struct gb_option_spec *spec;
    const char *mark = number == 1 ? gb_conf_mark(line) : NULL;
    char *key = gb_conf_trim(line);
    char *value;
    char hint[GB_NEAREST_HINT];
    char where[192];

    *ret_spec = NULL;
    if (mark)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%.128s:%u: the file %s", path, number, mark);
    if (key[0] == '\0')
        return 0;
    if (!gb_conf_split(key, &key, &value))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%.128s:%u: \"%.64s\" is not of the form name = value", path,
                            number, key);
    spec = gb_option_find(key, strlen(key));
    if (!spec || spec == &gb_option_specs[GB_OPTION_ID_config] || spec == &gb_option_specs[GB_OPTION_ID_help] ||
        spec == &gb_option_specs[GB_OPTION_ID_version])
        return gb_error_set(err, GB_ERR_UNKNOWN_FIELD, "%.128s:%u: there is no option \"%.64s\" for a file%s", path,
                            number, key, !spec ? option_hint(key, strlen(key), "", hint) : "");
    *ret_spec = spec;
    snprintf(where, sizeof(where), "%.128s:%u: %s", path, number, spec->name);
    return gb_option_set(options, spec, GB_SOURCE_FILE, where, value, err);
}

int gb_options_file(struct gb_options *options, const char *path, struct gb_error *err) {
    FILE *file = fopen(path, "re");
    const struct gb_option_spec *spec;
    unsigned number = 0;
    char *line = NULL;
    size_t size = 0;
    int r = 0;

    if (!file)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "--config %.128s cannot be read: %s", path, strerror(errno));
    while (r == 0 && getline(&line, &size, file) >= 0)
        r = gb_options_line(options, path, ++number, line, &spec, err);
    if (r == 0 && ferror(file))
        r = gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "--config %.128s cannot be read: %s", path, strerror(errno));
    free(line);
    fclose(file);
    return r;
}

/* --- help --------------------------------------------------------------------------------------------------------- */

#define COLUMN 28
#define WIDTH 100

void gb_options_put(FILE *out, const char *name, const char *argument, const char *help) {
    char left[96];

    snprintf(left, sizeof(left), "  %s%s%s", name, argument[0] != '\0' ? " " : "", argument);
    gb_put_help(out, left, help, COLUMN, WIDTH);
}

void gb_options_help_of(FILE *out, enum gb_option_id id) {
    const struct gb_option_spec *spec = &gb_option_specs[id];
    char name[64];
    char right[512];
    int n;

    snprintf(name, sizeof(name), "--%s", spec->name);
    n = snprintf(right, sizeof(right), "%s", spec->help);
    if (spec->type == GB_OPTION_CHOICE)
        n += snprintf(right + n, sizeof(right) - (size_t)n, ": %s", spec->permitted);
    if (spec->fallback[0] != '\0' && spec->type != GB_OPTION_FLAG)
        n += snprintf(right + n, sizeof(right) - (size_t)n, " (default %s)", spec->fallback);
    if (spec->type == GB_OPTION_LIST || spec->type == GB_OPTION_PATHS)
        snprintf(right + n, sizeof(right) - (size_t)n, "; may be repeated");
    gb_options_put(out, name, spec->argument, right);
}

void gb_options_help(FILE *out) {
    size_t i;

    fputs("Usage: gpubufd [OPTION...]\n"
          "       gpubufd token add|list|rotate|revoke ...   who may ask, see gpubufd token --help\n"
          "       gpubufd tls init|server|client|renew|show ...   certificates, see gpubufd tls --help\n"
          "       gpubufd fsck ...   whether stored bytes are sound, see gpubufd fsck --help\n"
          "       gpubufd recover ...   records made again from files of bytes, see gpubufd recover --help\n"
          "       gpubufd check FILE   whether a configuration file has mistakes, see gpubufd check --help\n"
          "\n"
          "Gives out the GPU memory of this machine by name over HTTP.\n"
          "\n",
          out);
    for (i = 0; i < GB_OPTION_IDS; i++)
        gb_options_help_of(out, (enum gb_option_id)i);
    fputs(
        "\n"
        "Each option may also stand in the file that --config names (state-dir = /srv/gpubufd) and in the environment\n"
        "(GPUBUFD_STATE_DIR=/srv/gpubufd). The command line wins over the environment, that over the file.\n"
        "Exit status: 0 stopped in order; 1 findings of fsck or recover; 64 usage; 70 could not start, or not stop in\n"
        "order; 75 device lost; 78 configuration.\n",
        out);
}

/* --- where values come from --------------------------------------------------------------------------------------- */

int gb_options_take(struct gb_options *options, int argc, char **argv, int *at, struct gb_error *err) {
    const char *text = argv[*at];
    const struct gb_option_spec *spec;
    const char *value;
    char hint[GB_NEAREST_HINT];
    char where[64];
    size_t len;
    int taken = 1;

    if (strcmp(text, "-h") == 0)
        text = "--help";
    if (strcmp(text, "-V") == 0)
        text = "--version";
    if (strncmp(text, "--", 2) != 0 || text[2] == '\0')
        return text[0] == '-' && text[1] != '\0'
                   ? gb_error_set(err, GB_ERR_UNKNOWN_FIELD, "there is no option \"%.64s\"", text)
                   : 0;
    len = strcspn(text + 2, "=");
    spec = gb_option_find(text + 2, len);
    if (!spec)
        return gb_error_set(err, GB_ERR_UNKNOWN_FIELD, "there is no option \"--%.*s\"%s", len > 64 ? 64 : (int)len,
                            text + 2, option_hint(text + 2, len, "--", hint));
    snprintf(where, sizeof(where), "--%s", spec->name);
    if (text[2 + len] == '=') {
        value = text + 3 + len;
    } else if (spec->type == GB_OPTION_FLAG) {
        value = "true";
    } else if (*at + 1 < argc) {
        value = argv[*at + 1];
        taken = 2;
    } else {
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%s needs a value: %s", where,
                            spec->permitted[0] != '\0' ? spec->permitted : spec->argument);
    }
    if (gb_option_set(options, spec, GB_SOURCE_COMMAND, where, value, err) != 0)
        return -1;
    *at += taken;
    return 1;
}

/* GPUBUFD_STATE_DIR for state-dir. */
static void environment_name(const struct gb_option_spec *spec, char *out, size_t size) {
    size_t i;

    snprintf(out, size, "GPUBUFD_%s", spec->name);
    for (i = 0; out[i] != '\0'; i++) {
        if (out[i] == '-')
            out[i] = '_';
        else if (out[i] >= 'a' && out[i] <= 'z')
            out[i] = (char)(out[i] - 'a' + 'A');
    }
}

static bool command_line_only(const struct gb_option_spec *spec) {
    return spec == &gb_option_specs[GB_OPTION_ID_help] || spec == &gb_option_specs[GB_OPTION_ID_version];
}

static int add_environment(struct gb_options *options, struct gb_error *err) {
    size_t i;

    for (i = 0; i < GB_OPTION_IDS; i++) {
        const struct gb_option_spec *spec = &gb_option_specs[i];
        const char *value;
        char name[64];

        if (command_line_only(spec))
            continue;
        environment_name(spec, name, sizeof(name));
        value = getenv(name);
        if (value && gb_option_set(options, spec, GB_SOURCE_ENVIRONMENT, name, value, err) != 0)
            return -1;
    }
    return 0;
}

int gb_options_defaults(struct gb_options *options, struct gb_error *err) {
    size_t i;

    for (i = 0; i < GB_OPTION_IDS; i++) {
        const struct gb_option_spec *spec = &gb_option_specs[i];

        if (options->source[i] == GB_SOURCE_NONE &&
            gb_option_set(options, spec, GB_SOURCE_DEFAULT, spec->name, spec->fallback, err) != 0)
            return -1;
    }
    return 0;
}

int gb_options_finish(struct gb_options *options, struct gb_error *err) {
    if (add_environment(options, err) != 0)
        return -1;
    if (options->config && options->config[0] != '\0' && gb_options_file(options, options->config, err) != 0)
        return -1;
    return gb_options_defaults(options, err);
}
