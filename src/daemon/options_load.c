#include <stdlib.h>
#include <string.h>

#include "daemon/options.h"

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
    if (spec == NULL)
        return gb_error_set(err, GB_ERR_UNKNOWN_FIELD, "there is no option \"--%.*s\"%s", len > 64 ? 64 : (int)len,
                            text + 2, gb_option_hint(text + 2, len, "--", hint));
    snprintf(where, sizeof where, "--%s", spec->name);
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
        environment_name(spec, name, sizeof name);
        value = getenv(name);
        if (value != NULL && gb_option_set(options, spec, GB_SOURCE_ENVIRONMENT, name, value, err) != 0)
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
    if (options->config != NULL && options->config[0] != '\0' && gb_options_file(options, options->config, err) != 0)
        return -1;
    return gb_options_defaults(options, err);
}
