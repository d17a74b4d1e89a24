#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/conf.h"
#include "daemon/options.h"

int gb_options_line(struct gb_options *options, const char *path, unsigned number, char *line,
                    const struct gb_option_spec **ret_spec, struct gb_error *err) {
    const struct gb_option_spec *spec;
    const char *mark = number == 1 ? gb_conf_mark(line) : NULL;
    char *key = gb_conf_trim(line);
    char *value;
    char hint[GB_NEAREST_HINT];
    char where[192];

    *ret_spec = NULL;
    if (mark != NULL)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%.128s:%u: the file %s", path, number, mark);
    if (key[0] == '\0')
        return 0;
    if (!gb_conf_split(key, &key, &value))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%.128s:%u: \"%.64s\" is not of the form name = value", path,
                            number, key);
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
