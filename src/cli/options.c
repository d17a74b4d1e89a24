#include "cli/options.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

#define LONG_ONLY 256 /* value of the first option without a letter */
#define DIGITS "0123456789"

#define GB_CLI_OPTION(type, field, name, letter, argument, words, help)                                                \
    {name, letter, argument, words, help, offsetof(struct gb_cli_options, field), GB_CLI_##type},
const struct gb_cli_option_spec gb_cli_options_all[GB_CLI_IDS] = {
#include "cli/options.def"
};
#undef GB_CLI_OPTION

#define GB_CLI_COMMAND(name, arguments, least, most, options, help)                                                    \
    {#name, arguments, least, most, options, help, gb_cli_run_##name},
const struct gb_cli_command gb_cli_commands[] = {
#include "cli/commands.def"
};
#undef GB_CLI_COMMAND
const size_t gb_cli_commands_count = sizeof gb_cli_commands / sizeof gb_cli_commands[0];

const struct gb_cli_command *gb_cli_command_find(const char *name) {
    size_t i;

    for (i = 0; i < gb_cli_commands_count; i++)
        if (strcmp(gb_cli_commands[i].name, name) == 0)
            return &gb_cli_commands[i];
    return NULL;
}

bool gb_cli_has_word(const char *words, const char *word) {
    size_t n = strlen(word);
    const char *at = words;

    while (n > 0 && (at = strstr(at, word)) != NULL) {
        if ((at == words || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0'))
            return true;
        at += n;
    }
    return false;
}

bool gb_cli_option_common(enum gb_cli_option_id id) {
    return id <= GB_CLI_ID_version;
}

bool gb_cli_option_taken(const struct gb_cli_command *command, enum gb_cli_option_id id) {
    return gb_cli_option_common(id) ||
           (command != NULL && gb_cli_has_word(command->options, gb_cli_options_all[id].name));
}

int gb_cli_size(const char *text, uint64_t *ret) {
    static const char units[] = "KMGT";
    const char *unit;
    char *end;
    unsigned long long value;
    unsigned shift = 0;

    errno = 0;
    value = strtoull(text, &end, 10);
    if (end == text || text[0] < '0' || text[0] > '9' || errno != 0)
        return -1;
    unit = *end != '\0' ? strchr(units, *end) : NULL;
    if (unit != NULL) {
        shift = 10 * (unsigned)(unit - units + 1);
        end++;
    }
    if (*end != '\0' || value > UINT64_MAX >> shift)
        return -1;
    *ret = (uint64_t)value << shift;
    return 0;
}

static int set_seconds(const char *text, double *ret) {
    char *end;
    double value = strtod(text, &end);

    if (end == text || *end != '\0' || !isfinite(value) || value <= 0 || value > 1e6)
        return -1;
    *ret = value;
    return 0;
}

static int set(struct gb_cli_options *options, enum gb_cli_option_id id, const char *text) {
    const struct gb_cli_option_spec *spec = &gb_cli_options_all[id];
    void *value = (char *)options + spec->at;
    int rc = 0;

    options->given[id] = true;
    switch (spec->type) {
    case GB_CLI_TEXT:
        *(const char **)value = text;
        rc = text[0] != '\0' ? 0 : -1;
        break;
    case GB_CLI_FLAG:
        *(bool *)value = true;
        break;
    case GB_CLI_SECONDS:
        rc = set_seconds(text, value);
        break;
    case GB_CLI_LIMIT:
        *(uint64_t *)value = GB_CLI_NONE;
        rc = strcmp(text, "none") == 0 || strcmp(text, "unlimited") == 0 ? 0 : gb_cli_size(text, value);
        break;
    case GB_CLI_SIZE:
    case GB_CLI_COUNT:
        rc = gb_cli_size(text, value);
        break;
    }
    if (rc != 0)
        fprintf(stderr, "gpubuf: --%s \"%s\" is not %s\n", spec->name, text,
                spec->type == GB_CLI_SIZE ? "a size: bytes, with K, M, G or T behind them if you like"
                : spec->type == GB_CLI_LIMIT
                    ? "a limit: a number, with K, M, G or T behind it if you like, or unlimited"
                : spec->type == GB_CLI_COUNT   ? "a number"
                : spec->type == GB_CLI_SECONDS ? "a number of seconds above 0"
                                               : "anything");
    return rc;
}

/* What is meant for a number would else be reported as an option that is called after its first digit. */
static int refuse_number(char **argv, int digit) {
    const char *last = argv[optind - 1]; /* getopt stands behind it, or still in the next */
    const char *next = argv[optind];
    bool behind = next == NULL || next[0] != '-' || next[1] != digit || last[1] == digit;

    fprintf(stderr, "gpubuf: \"%s\" is no option, and a number below 0 is taken only as the value of an option\n",
            behind ? last : next);
    return -1;
}

int gb_cli_options_read(int argc, char **argv, struct gb_cli_options *ret, int *ret_first) {
    struct option longs[GB_CLI_IDS + 1];
    char shorts[3 * GB_CLI_IDS + sizeof DIGITS] = DIGITS;
    char *at = shorts + strlen(DIGITS);
    int c;
    int i;

    memset(ret, 0, sizeof *ret);
    memset(longs, 0, sizeof longs);
    for (i = 0; i < GB_CLI_IDS; i++) {
        const struct gb_cli_option_spec *spec = &gb_cli_options_all[i];

        longs[i].name = spec->name;
        longs[i].has_arg = spec->type == GB_CLI_FLAG ? no_argument : required_argument;
        longs[i].val = LONG_ONLY + i;
        if (spec->letter != 0)
            at += sprintf(at, "%c%s", spec->letter, spec->type == GB_CLI_FLAG ? "" : ":");
    }
    *at = '\0';
    optind = 0; /* start anew: tests parse more than once */
    while ((c = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
        if (c == '?')
            return -1;
        if (c >= '0' && c <= '9')
            return refuse_number(argv, c);
        for (i = 0; i < GB_CLI_IDS; i++)
            if (c == LONG_ONLY + i || c == gb_cli_options_all[i].letter)
                break;
        if (i < GB_CLI_IDS && set(ret, (enum gb_cli_option_id)i, optarg != NULL ? optarg : "") < 0)
            return -1;
    }
    *ret_first = optind;
    return 0;
}

int gb_cli_options_check(const struct gb_cli_options *options, const struct gb_cli_command *command, int argc) {
    int i;

    for (i = 0; i < GB_CLI_IDS; i++)
        if (options->given[i] && !gb_cli_option_taken(command, (enum gb_cli_option_id)i)) {
            fprintf(stderr, "gpubuf: %s takes no --%s; \"gpubuf %s --help\" lists what it takes\n", command->name,
                    gb_cli_options_all[i].name, command->name);
            return -1;
        }
    if (argc < command->least || (command->most > 0 && argc > command->most) ||
        (argc > 0 && command->arguments[0] == '\0')) {
        fprintf(stderr, "gpubuf: usage: gpubuf %s%s%s [OPTION...]\n", command->name, command->arguments[0] ? " " : "",
                command->arguments);
        return -1;
    }
    return 0;
}
