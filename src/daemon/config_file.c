#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/options.h"

/* Cuts the comment and the space around: returns the first character that counts. */
static char *trim(char *line) {
    char *end;
    char *p;

    for (p = line; *p != '\0'; p++)
        if (*p == '#' && (p == line || isspace((unsigned char)p[-1])))
            *p = '\0';
    while (isspace((unsigned char)*line))
        line++;
    end = line + strlen(line);
    while (end > line && isspace((unsigned char)end[-1]))
        *--end = '\0';
    return line;
}

int gb_options_line(struct gb_options *options, const char *path, unsigned number, char *line,
                    const struct gb_option_spec **ret_spec, struct gb_error *err) {
    const struct gb_option_spec *spec;
    char *key = trim(line);
    char *value = strchr(key, '=');
    char hint[GB_NEAREST_HINT];
    char where[192];

    *ret_spec = NULL;
    if (key[0] == '\0')
        return 0;
    if (value == NULL)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%.128s:%u: \"%.64s\" is not of the form name = value", path,
                            number, key);
    *value++ = '\0';
    key = trim(key);
    value = trim(value);
    spec = gb_option_find(key, strlen(key));
    if (spec == NULL || spec == &gb_option_specs[GB_OPTION_ID_config] || spec == &gb_option_specs[GB_OPTION_ID_help] ||
        spec == &gb_option_specs[GB_OPTION_ID_version])
        return gb_error_set(err, GB_ERR_UNKNOWN_FIELD, "%.128s:%u: there is no option \"%.64s\" for a file%s", path,
                            number, key, spec == NULL ? gb_option_hint(key, strlen(key), "", hint) : "");
    *ret_spec = spec;
    snprintf(where, sizeof where, "%.128s:%u: %s", path, number, spec->name);
    return gb_option_set(options, spec, GB_SOURCE_FILE, where, value, err);
}

int gb_options_file(struct gb_options *options, const char *path, struct gb_error *err) {
    FILE *file = fopen(path, "re");
    const struct gb_option_spec *spec;
    unsigned number = 0;
    char *line = NULL;
    size_t size = 0;
    int rc = 0;

    if (file == NULL)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "--config %.128s cannot be read: %s", path, strerror(errno));
    while (rc == 0 && getline(&line, &size, file) >= 0)
        rc = gb_options_line(options, path, ++number, line, &spec, err);
    if (rc == 0 && ferror(file))
        rc = gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "--config %.128s cannot be read: %s", path, strerror(errno));
    free(line);
    fclose(file);
    return rc;
}
