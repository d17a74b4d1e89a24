/* Words and options of gpubufd's commands: help, errors with the nearest word, and the reading of a command line. The
 * commands beside this file call it. */
#include "daemon/commands/command.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

static bool taken(const struct gb_command_option *option, int verb) {
    return verb == GB_COMMAND_ALL || (option->verbs & 1u << verb) != 0;
}

static int find(const struct gb_command *command, const char *word) {
    int i;

    for (i = 0; i < command->option_count; i++) {
        if (strcmp(command->options[i].name, word) == 0)
            return i;
    }
    return -1;
}

static int check(const struct gb_command_option *option, const char *value, struct gb_error *err) {
    bool path = strcmp(option->argument, "FILE") == 0 || strcmp(option->argument, "DIR") == 0;
    size_t n = strlen(value);
    const char *fault = path ? gb_conf_path(value, n) : gb_conf_quotes(value, n);

    return !fault ? 0 : gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%s: %.64s %s", option->name, value, fault);
}

/* --- help --------------------------------------------------------------------------------------------------------- */

static void put_verb(FILE *out, const struct gb_command *command, int verb, bool all) {
    int i;

    if (!all)
        fprintf(out, "%s.\n\n", command->verbs[verb].help);
    else
        fprintf(out, "\ngpubufd %s %s\n  %s.\n", command->word, command->verbs[verb].usage, command->verbs[verb].help);
    for (i = 0; i < command->option_count; i++) {
        const struct gb_command_option *option = &command->options[i];

        if (taken(option, verb))
            gb_options_put(out, option->name, option->argument, option->help);
    }
}

void gb_command_help(FILE *out, const struct gb_command *command, int verb) {
    int i;

    for (i = 0; i < command->verb_count; i++) {
        if (verb == GB_COMMAND_ALL || verb == i)
            fprintf(out, "%s gpubufd %s %s\n", i == 0 || verb == i ? "Usage:" : "      ", command->word,
                    command->verbs[i].usage);
    }
    if (verb != GB_COMMAND_ALL)
        putc('\n', out);
    for (i = 0; i < command->verb_count; i++) {
        if (verb == GB_COMMAND_ALL || verb == i)
            put_verb(out, command, i, verb == GB_COMMAND_ALL);
    }
    fputs("\nOf the daemon's options, which are all taken (gpubufd --help):\n", out);
    for (i = 0; i < command->of_daemon_count; i++)
        gb_options_help_of(out, command->of_daemon[i]);
}

/* --- errors ------------------------------------------------------------------------------------------------------- */

/* Of word[0..length), without its "--". */
static char *hint_of(const struct gb_command *command, int verb, const char *word, size_t length,
                     char text[GB_NEAREST_HINT]) {
    struct gb_nearest nearest;
    int i;

    gb_nearest_begin(&nearest, word, length);
    for (i = 0; i < command->option_count; i++) {
        if (taken(&command->options[i], verb))
            gb_nearest_try(&nearest, command->options[i].name + 2);
    }
    for (i = 0; i < GB_OPTION_IDS; i++)
        gb_nearest_try(&nearest, gb_option_specs[i].name);
    return gb_nearest_hint(&nearest, "--", text);
}

/* The nearest option, and those of the verb. Returns -1. */
static int unknown(const struct gb_command *command, int verb, const char *word, struct gb_error *err) {
    size_t length = strcspn(word, "=");
    size_t dashes = strspn(word, "-");
    char hint[GB_NEAREST_HINT];
    char of[32] = "";
    char own[256] = "";
    size_t at = 0;
    int i;

    for (i = 0; i < command->option_count && at < sizeof(own); i++) {
        if (taken(&command->options[i], verb))
            at += (size_t)snprintf(own + at, sizeof(own) - at, "%s, ", command->options[i].name);
    }
    if (verb >= 0 && command->verb_count > 1)
        snprintf(of, sizeof(of), " %.*s", (int)strcspn(command->verbs[verb].usage, " "), command->verbs[verb].usage);
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                        "%s%s: there is no option \"%.*s\"%s; permitted: %sand the daemon's options", command->word, of,
                        length > 64 ? 64 : (int)length, word,
                        hint_of(command, verb, word + dashes, length - dashes, hint), own);
}

enum gb_exit gb_command_usage_error(const struct gb_command *command, const struct gb_error *err) {
    fprintf(stderr, "gpubufd: %s\ngpubufd %s --help says more\n", err->detail, command->word);
    return GB_EXIT_USAGE;
}

enum gb_exit gb_usage_error(const struct gb_error *err) {
    const char *at;

    fputs("gpubufd: ", stderr);
    for (at = err->detail; *at != '\0'; at++) /* a word of the command line may hold what a terminal obeys */
        fputc(iscntrl((unsigned char)*at) && *at != '\n' ? '?' : *at, stderr);
    fputc('\n', stderr);
    fputs("gpubufd --help says more\n", stderr);
    return GB_EXIT_USAGE;
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

int gb_command_verb(const struct gb_command *command, const struct gb_command_line *line) {
    int i;

    for (i = 0; i < command->verb_count && line->count > 0; i++) {
        size_t n = strcspn(command->verbs[i].usage, " ");

        if (strlen(line->words[0]) == n && memcmp(command->verbs[i].usage, line->words[0], n) == 0)
            return i;
    }
    return GB_COMMAND_ALL;
}

int gb_command_fits(const struct gb_command *command, int verb, const struct gb_command_line *line,
                    struct gb_error *err) {
    int i;

    for (i = 0; i < command->option_count; i++) {
        if (line->own[i] && !taken(&command->options[i], verb))
            return unknown(command, verb, command->options[i].name, err);
    }
    return 0;
}

/* One of the command's own options at argv[*at], with its value. 1; 0: it is not one of them; -1: the value is missing,
 * or a FILE or DIR is no path. */
static int take_own(const struct gb_command *command, int argc, char **argv, int *at, struct gb_command_line *line,
                    struct gb_error *err) {
    int own = find(command, argv[*at]);
    const struct gb_command_option *option;
    bool valued;

    if (own < 0)
        return 0;
    option = &command->options[own];
    valued = option->argument[0] != '\0';
    if (valued && *at + 1 == argc)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%s needs a value: %s", option->name, option->help);
    if (valued && check(option, argv[*at + 1], err) != 0)
        return -1;
    line->own[own] = argv[*at + valued];
    *at += 1 + valued;
    return line->take && line->take(line->arg, own, line->own[own], err) != 0 ? -1 : 1;
}

static int take_option(const struct gb_command *command, struct gb_options *options, int argc, char **argv, int *at,
                       const struct gb_command_line *line, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    int r = gb_options_take(options, argc, argv, at, &why);

    if (r < 0 && why.code == GB_ERR_UNKNOWN_FIELD)
        return unknown(command, gb_command_verb(command, line), argv[*at], err);
    return r < 0 ? gb_error_move(err, &why) : r;
}

int gb_command_read(const struct gb_command *command, struct gb_options *options, int argc, char **argv,
                    struct gb_command_line *line, struct gb_error *err) {
    int at = 1;

    while (at < argc) {
        int r = take_own(command, argc, argv, &at, line, err);

        if (r == 0)
            r = take_option(command, options, argc, argv, &at, line, err);
        if (r < 0)
            return -1;
        if (r > 0)
            continue;
        if (line->count == line->most)
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%s: one word too many: \"%.64s\"", command->word,
                                argv[at]);
        line->words[line->count++] = argv[at++];
    }
    return 0;
}
