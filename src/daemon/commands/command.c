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

int gb_command_own(const struct gb_command *command, int argc, char **argv, int *at, int *ret_own,
                   const char **ret_value, struct gb_error *err) {
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
    *ret_own = own;
    *ret_value = argv[*at + valued];
    *at += 1 + valued;
    return 1;
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

int gb_command_unknown(const struct gb_command *command, int verb, const char *word, struct gb_error *err) {
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

int gb_command_take(const struct gb_command *command, int verb, struct gb_options *options, int argc, char **argv,
                    int *at, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    int taken = gb_options_take(options, argc, argv, at, &why);

    if (taken < 0 && why.code == GB_ERR_UNKNOWN_FIELD)
        return gb_command_unknown(command, verb, argv[*at], err);
    return taken < 0 ? gb_error_move(err, &why) : taken;
}

enum gb_exit gb_command_usage_error(const struct gb_command *command, const struct gb_error *err) {
    fprintf(stderr, "gpubufd: %s\ngpubufd %s --help says more\n", err->detail, command->word);
    return GB_EXIT_USAGE;
}

int gb_command_flags(const struct gb_command *command, struct gb_options *options, int argc, char **argv,
                     bool *const flags[], struct gb_error *err) {
    int at = 1;

    while (at < argc) {
        int own = find(command, argv[at]);
        int taken;

        if (own >= 0) {
            *flags[own] = true;
            at++;
            continue;
        }
        taken = gb_command_take(command, 0, options, argc, argv, &at, err);
        if (taken < 0)
            return -1;
        if (taken == 0)
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%s: one word too many: \"%.64s\"", command->word,
                                argv[at]);
    }
    return 0;
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
