/* Options: one list (options.def) gives the command line, the file, the environment and the help text. The command line
 * wins over the environment, that over the file, that over the default. */
#ifndef GB_DAEMON_OPTIONS_H
#define GB_DAEMON_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"
#include "base/text.h"
#include "model/model.h"

enum gb_option_type {
    GB_OPTION_TEXT,
    GB_OPTION_PATH,
    GB_OPTION_LIST,
    GB_OPTION_PATHS,
    GB_OPTION_CHOICE,
    GB_OPTION_SIZE,
    GB_OPTION_COUNT,
    GB_OPTION_SECONDS,
    GB_OPTION_FLAG
};

enum gb_option_id {
#define GB_OPTION(type, field, name, argument, fallback, permitted, min, max, help) GB_OPTION_ID_##field,
#include "daemon/options.def"
#undef GB_OPTION
    GB_OPTION_IDS
};

/* Where a value came from; a greater one replaces a lesser one. */
enum gb_option_source { GB_SOURCE_NONE, GB_SOURCE_DEFAULT, GB_SOURCE_FILE, GB_SOURCE_ENVIRONMENT, GB_SOURCE_COMMAND };

struct gb_text_list {
    char **items; /* malloc'd, each too */
    size_t count;
};

typedef char *gb_option_value_TEXT;
typedef char *gb_option_value_PATH;
typedef struct gb_text_list gb_option_value_LIST;
typedef struct gb_text_list gb_option_value_PATHS;
typedef char *gb_option_value_CHOICE;
typedef uint64_t gb_option_value_SIZE;
typedef uint64_t gb_option_value_COUNT;
typedef uint64_t gb_option_value_SECONDS;
typedef bool gb_option_value_FLAG;

/* A member for each line of options.def. Zero-initialised is empty. Texts are never NULL after gb_options_finish. */
struct gb_options {
#define GB_OPTION(type, field, name, argument, fallback, permitted, min, max, help) gb_option_value_##type field;
#include "daemon/options.def"
#undef GB_OPTION
    enum gb_option_source source[GB_OPTION_IDS];
};

struct gb_option_spec {
    const char *name;
    const char *argument;
    const char *fallback;
    const char *permitted;
    const char *help;
    size_t at; /* offset of the value in struct gb_options */
    uint64_t min;
    uint64_t max;
    enum gb_option_type type;
};

extern const struct gb_option_spec gb_option_specs[GB_OPTION_IDS];

void gb_options_done(struct gb_options *options);

/* Finds an option by name[0..len). NULL: no such option. */
const struct gb_option_spec *gb_option_find(const char *name, size_t len);

/* Sets a value from text unless one of a greater source stands; a list grows by values of the same source. `where`
 * names the place for the error ("--listen", "GPUBUFD_LISTEN", "FILE:3: listen"). INVALID_ARGUMENT. */
int gb_option_set(struct gb_options *options, const struct gb_option_spec *spec, enum gb_option_source source,
                  const char *where, const char *text, struct gb_error *err);

/* Takes the option at argv[*at] with its argument and moves *at behind it. 1: taken; 0: argv[*at] is no option; -1:
 * UNKNOWN_FIELD when there is no such option, INVALID_ARGUMENT when the value is wrong. */
int gb_options_take(struct gb_options *options, int argc, char **argv, int *at, struct gb_error *err);

/* Adds the environment, the file that --config names and the defaults. */
int gb_options_finish(struct gb_options *options, struct gb_error *err);

/* Adds the options that are not set, as they are without being given. */
int gb_options_defaults(struct gb_options *options, struct gb_error *err);

/* Adds one line of the file `path`, which it changes. *ret_spec: the option that it sets; NULL: it is empty. */
int gb_options_line(struct gb_options *options, const char *path, unsigned number, char *line,
                    const struct gb_option_spec **ret_spec, struct gb_error *err);

/* Adds the lines of a file. */
int gb_options_file(struct gb_options *options, const char *path, struct gb_error *err);

/* The help text. */
void gb_options_help(FILE *out);

/* The lines of one option, and of any other in the same form. */
void gb_options_help_of(FILE *out, enum gb_option_id id);
void gb_options_put(FILE *out, const char *name, const char *argument, const char *help);

#endif
