/* The command line: the tables of options, commands and their words, made of the .def files, and argv read by them.
 * Every fault is reported here, before a daemon is asked: options that do not exist, values that are not meant,
 * options that the command does not take. Values are not repeated where they may be secrets. */

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cli/cli.h"

#define LONG_ONLY 256 /* value of the first option without a letter */
#define DIGITS "0123456789"
#define SPEC(type, field, key, name, letter, argument, words, takers, help)                                            \
    {name, letter, argument, words, takers, help, key, offsetof(struct gb_cli_options, field), GB_CLI_##type},
#define GB_CLI_OPTION(type, field, ...) SPEC(type, field, NULL, __VA_ARGS__)
#define GB_CLI_SETTING(type, field, ...) SPEC(type, field, #field, __VA_ARGS__)

const struct gb_cli_option_spec gb_cli_options_all[GB_CLI_IDS] = {
#include "cli/options.def"
};

#define GB_CLI_COMMAND(name, arguments, least, most, help) {#name, arguments, least, most, help, gb_cli_run_##name},
const struct gb_cli_command gb_cli_commands[] = {
#include "cli/commands.def"
};
#undef GB_CLI_COMMAND
const size_t gb_cli_commands_count = sizeof(gb_cli_commands) / sizeof(gb_cli_commands[0]);

#define GB_CLI_VERB(command, name, help) {#command, name, help},
const struct gb_cli_verb gb_cli_verbs[] = {
#include "cli/verbs.def"
};
#undef GB_CLI_VERB
const size_t gb_cli_verbs_count = sizeof(gb_cli_verbs) / sizeof(gb_cli_verbs[0]);

static bool is_of(const struct gb_cli_verb *verb, const struct gb_cli_command *command) {
    return strcmp(verb->command, command->name) == 0;
}

const struct gb_cli_verb *gb_cli_verb_find(const struct gb_cli_command *command, const char *name) {
    size_t i;

    for (i = 0; i < gb_cli_verbs_count; i++)
        if (is_of(&gb_cli_verbs[i], command) && strcmp(gb_cli_verbs[i].name, name) == 0)
            return &gb_cli_verbs[i];
    return NULL;
}

size_t gb_cli_verb_own(const struct gb_cli_verb *verb) {
    size_t n = strspn(verb->help, "ABCDEFGHIJKLMNOPQRSTUVWXYZ .");

    return verb->help[n] == ':' ? n : 0;
}

void gb_cli_verb_unknown(const struct gb_cli_command *command, const char *name) {
    char hint[GB_NEAREST_HINT];
    struct gb_nearest nearest;
    size_t i;

    gb_nearest_begin(&nearest, name, strlen(name));
    for (i = 0; i < gb_cli_verbs_count; i++)
        if (is_of(&gb_cli_verbs[i], command))
            gb_nearest_try(&nearest, gb_cli_verbs[i].name);
    fprintf(stderr, "gpubuf: %s has no word \"", command->name);
    gb_cli_put(stderr, name);
    fprintf(stderr, "\"%s; \"gpubuf help %s\" says what it takes\n", gb_nearest_hint(&nearest, "", hint),
            command->name);
}

const struct gb_cli_command *gb_cli_command_find(const char *name) {
    size_t i;

    for (i = 0; i < gb_cli_commands_count; i++)
        if (strcmp(gb_cli_commands[i].name, name) == 0)
            return &gb_cli_commands[i];
    return NULL;
}

/* Words of other programs for what a command does; NULL: none. */
static const char *command_meant(const char *name) {
    static const struct {
        const char *word;
        const char *hint;
    } words[] = {
        {"cat", "\"gpubuf get NAME\" writes a buffer to standard output"},
        {"download", "is get meant?"},
        {"fetch", "is get meant?"},
        {"upload", "is put meant?"},
        {"push", "is put meant?"},
        {"delete", "is rm meant?"},
        {"remove", "is rm meant?"},
        {"del", "is rm meant?"},
        {"list", "is ls meant?"},
        {"dir", "is ls meant?"},
        {"copy", "is cp meant?"},
        {"mv", "buffers have no other name later: \"gpubuf cp SOURCE TARGET\" and then rm"},
        {"move", "buffers have no other name later: \"gpubuf cp SOURCE TARGET\" and then rm"},
        {"rename", "buffers have no other name later: \"gpubuf cp SOURCE TARGET\" and then rm"},
        {"token", "\"gpubufd token\" makes, lists and revokes tokens"},
        {"tokens", "\"gpubufd token\" makes, lists and revokes tokens"},
    };
    size_t i;

    for (i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcmp(words[i].word, name) == 0)
            return words[i].hint;
    return NULL;
}

void gb_cli_command_unknown(const char *name) {
    const char *meant = command_meant(name);
    char hint[GB_NEAREST_HINT];
    struct gb_nearest nearest;
    size_t i;

    gb_nearest_begin(&nearest, name, strlen(name));
    for (i = 0; i < gb_cli_commands_count; i++)
        gb_nearest_try(&nearest, gb_cli_commands[i].name);
    fputs("gpubuf: there is no command \"", stderr);
    gb_cli_put(stderr, name);
    fprintf(stderr, "\"%s%s; \"gpubuf --help\" lists them\n", meant ? "; " : "",
            meant ? meant : gb_nearest_hint(&nearest, "", hint));
}

bool gb_cli_has_word(const char *words, const char *word) {
    size_t n = strlen(word);
    const char *at = words;

    while (n > 0 && (at = strstr(at, word))) {
        if ((at == words || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0'))
            return true;
        at += n;
    }
    return false;
}

bool gb_cli_option_common(enum gb_cli_option_id id) {
    return strcmp(gb_cli_options_all[id].takers, "*") == 0;
}

bool gb_cli_option_taken(const struct gb_cli_command *command, const struct gb_cli_verb *verb,
                         enum gb_cli_option_id id) {
    const char *at = gb_cli_options_all[id].takers;
    size_t n = strlen(command->name);

    for (; *at != '\0'; at += strcspn(at, " "), at += *at == ' ') {
        if (strncmp(at, command->name, n) != 0 || !strchr(" .", at[n]))
            continue;
        if (!verb || (strncmp(at + n + 1, verb->name, strcspn(at + n + 1, " ")) == 0 &&
                      verb->name[strcspn(at + n + 1, " ")] == '\0'))
            return true;
    }
    return false;
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
    if (unit) {
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

const char *gb_cli_option_set(struct gb_cli_options *options, enum gb_cli_option_id id, const char *text) {
    const struct gb_cli_option_spec *spec = &gb_cli_options_all[id];
    void *value = (char *)options + spec->at;

    options->given[id] = true;
    switch (spec->type) {
    case GB_CLI_TEXT:
    case GB_CLI_FILE:
    case GB_CLI_DEVICE:
        *(const char **)value = text;
        return text[0] != '\0' ? NULL : "anything";
    case GB_CLI_PHRASE:
        *(const char **)value = text;
        return NULL;
    case GB_CLI_FLAG:
        *(bool *)value = true;
        return NULL;
    case GB_CLI_SECONDS:
        return set_seconds(text, value) == 0 ? NULL : "a number of seconds above 0";
    case GB_CLI_LIMIT:
        *(uint64_t *)value = GB_CLI_NONE;
        if (strcmp(text, "none") == 0 || strcmp(text, "unlimited") == 0 || gb_cli_size(text, value) == 0)
            return NULL;
        return "a limit: a number, with K, M, G or T behind it if you like, or unlimited";
    case GB_CLI_SIZE:
        return gb_cli_size(text, value) == 0 ? NULL : "a size: bytes, with K, M, G or T behind them if you like";
    case GB_CLI_COUNT:
        return gb_cli_size(text, value) == 0 ? NULL : "a number";
    }
    return NULL;
}

/* Without the value, which may be a secret by mistake. */
static int set(struct gb_cli_options *options, enum gb_cli_option_id id, const char *text) {
    const char *wanted = gb_cli_option_set(options, id, text);
    bool file = gb_cli_options_all[id].type == GB_CLI_FILE;
    const char *fault = file ? gb_conf_path(text, strlen(text)) : NULL;

    if (fault) {
        fprintf(stderr, "gpubuf: --%s %s\n", gb_cli_options_all[id].name, fault);
        return -1;
    }
    if (!wanted)
        return 0;
    fprintf(stderr, "gpubuf: --%s \"%s\" is not %s\n", gb_cli_options_all[id].name, text, wanted);
    return -1;
}

/* What is meant for a number would else be reported as an option that is called after its first digit. */
static int refuse_number(char **argv, int digit) {
    const char *last = argv[optind - 1]; /* getopt stands behind it, or still in the next */
    const char *next = argv[optind];
    bool behind = !next || next[0] != '-' || next[1] != digit || last[1] == digit;

    fprintf(stderr, "gpubuf: \"%s\" is no option, and a number below 0 is taken only as the value of an option\n",
            behind ? last : next);
    return -1;
}

/* Options whose value or effect concerns a secret. A word that only begins like one of them is not taken for it: the
 * value behind that word may be meant for another. */
static bool exact(int id) {
    static const int ids[] = {
        GB_CLI_ID_token_file, GB_CLI_ID_plain_token, GB_CLI_ID_cert,   GB_CLI_ID_key,
        GB_CLI_ID_token,      GB_CLI_ID_etcd_user,   GB_CLI_ID_header, GB_CLI_ID_source_token_file};
    size_t i;

    for (i = 0; i < sizeof(ids) / sizeof(ids[0]); i++)
        if (ids[i] == id)
            return true;
    return false;
}

/* Whether argv's word is all of the option's name. */
static bool is_whole(const char *word, int id) {
    const char *name = gb_cli_options_all[id].name;
    size_t n = strlen(name);

    return strncmp(word, "--", 2) == 0 && strncmp(word + 2, name, n) == 0 &&
           (word[2 + n] == '\0' || word[2 + n] == '=');
}

/* A long option that there is not, or that several begin with. */
static void refuse_word(const char *word) {
    int length = (int)strcspn(word, "=");
    char hint[GB_NEAREST_HINT];
    char shown[128];
    struct gb_nearest nearest;
    int found = 0;
    int i;

    snprintf(shown, sizeof(shown), "%.*s", length, word);
    fputs("gpubuf: there is no option \"--", stderr);
    gb_cli_put(stderr, shown);
    fputc('"', stderr);
    for (i = 0; i < GB_CLI_IDS; i++)
        if (length > 0 && strncmp(gb_cli_options_all[i].name, word, (size_t)length) == 0)
            fprintf(stderr, "%s--%s", found++ == 0 ? "; it could be " : ", ", gb_cli_options_all[i].name);
    gb_nearest_begin(&nearest, word, (size_t)length);
    for (i = 0; i < GB_CLI_IDS; i++)
        gb_nearest_try(&nearest, gb_cli_options_all[i].name);
    fprintf(stderr, "%s; \"gpubuf COMMAND --help\" lists those of a command\n",
            found == 0 ? gb_nearest_hint(&nearest, "--", hint) : "");
}

/* The option of a value of getopt_long(); GB_CLI_IDS: none. */
static int id_of(int c) {
    int i;

    for (i = 0; i < GB_CLI_IDS; i++)
        if (c == LONG_ONLY + i || (c != 0 && c == gb_cli_options_all[i].letter))
            break;
    return i;
}

/* Instead of getopt's own words, which repeat what stands behind the =, and that may be a secret. */
static int refuse_option(const char *word, int c) {
    int id = id_of(optopt);
    const struct gb_cli_option_spec *spec = id < GB_CLI_IDS ? &gb_cli_options_all[id] : NULL;

    if (spec && c == ':')
        fprintf(stderr, "gpubuf: --%s needs a value: %s\n", spec->name, spec->argument);
    else if (spec)
        fprintf(stderr, "gpubuf: --%s takes no value\n", spec->name);
    else if (optopt != 0)
        fprintf(stderr, "gpubuf: there is no option \"-%c\"; \"gpubuf --help\" lists them\n", optopt);
    else
        refuse_word(word + 2);
    return -1;
}

int gb_cli_options_read(int argc, char **argv, struct gb_cli_options *ret, int *ret_first) {
    struct option longs[GB_CLI_IDS + 1];
    char shorts[3 * GB_CLI_IDS + sizeof(DIGITS) + 1] = ":" DIGITS;
    char *at = shorts + strlen(shorts);
    const char *word;
    int c;
    int i;

    memset(ret, 0, sizeof(*ret));
    memset(longs, 0, sizeof(longs));
    for (i = 0; i < GB_CLI_IDS; i++) {
        const struct gb_cli_option_spec *spec = &gb_cli_options_all[i];

        longs[i].name = spec->name;
        longs[i].has_arg = spec->type == GB_CLI_FLAG ? no_argument : required_argument;
        longs[i].val = LONG_ONLY + i;
        if (spec->letter != 0)
            at += sprintf(at, "%c%s", spec->letter, spec->type == GB_CLI_FLAG ? "" : ":");
    }
    *at = '\0';
    opterr = 0;
    optind = 0; /* start again: tests parse more than once */
    while ((c = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
        word = argv[optarg && optarg == argv[optind - 1] ? optind - 2 : optind - 1];
        if (c == '?' || c == ':')
            return refuse_option(argv[optind - 1], c);
        if (c >= '0' && c <= '9')
            return refuse_number(argv, c);
        i = id_of(c);
        if (i < GB_CLI_IDS && c >= LONG_ONLY && exact(i) && !is_whole(word, i)) {
            fprintf(stderr, "gpubuf: \"%.*s\" is not all of --%s, which is taken only in full\n",
                    (int)strcspn(word, "="), word, gb_cli_options_all[i].name);
            return -1;
        }
        if (i < GB_CLI_IDS && set(ret, (enum gb_cli_option_id)i, optarg ? optarg : "") < 0)
            return -1;
    }
    *ret_first = optind;
    return 0;
}

static bool has_verbs(const struct gb_cli_command *command) {
    size_t i;

    for (i = 0; i < gb_cli_verbs_count; i++)
        if (is_of(&gb_cli_verbs[i], command))
            return true;
    return false;
}

static int refuse_taken(const struct gb_cli_command *command, const struct gb_cli_verb *verb, int id) {
    const char *space = verb ? " " : "";
    const char *word = verb ? verb->name : "";
    const char *name = gb_cli_options_all[id].name;

    if (!verb && gb_cli_option_taken(command, NULL, (enum gb_cli_option_id)id))
        fprintf(stderr,
                "gpubuf: %s alone takes no --%s, which has an effect with a word behind it; \"gpubuf help %s\" lists "
                "them\n",
                command->name, name, command->name);
    else
        fprintf(stderr, "gpubuf: %s%s%s takes no --%s; \"gpubuf help %s%s%s\" lists what it takes\n", command->name,
                space, word, name, command->name, space, word);
    return -1;
}

int gb_cli_options_idle(const struct gb_cli_options *options, const char *names, const char *why) {
    int i;

    for (i = 0; i < GB_CLI_IDS; i++)
        if (options->given[i] && gb_cli_has_word(names, gb_cli_options_all[i].name)) {
            fprintf(stderr, "gpubuf: --%s has no effect here: %s\n", gb_cli_options_all[i].name, why);
            return -1;
        }
    return 0;
}

/* Words that the command takes. */
static int most_of(const struct gb_cli_command *command) {
    return command->arguments[0] == '\0' ? 0 : command->most > 0 ? command->most : INT_MAX;
}

static int refuse_count(const struct gb_cli_command *command, int argc, char **argv) {
    int most = most_of(command);

    if (argc > most) {
        fprintf(stderr, "gpubuf: %s takes %s%.0d word%s, and \"", command->name, most == 0 ? "no" : "at most ", most,
                most == 1 ? "" : "s");
        gb_cli_put(stderr, argv[most]);
        fprintf(stderr, "\" is one more%s\n",
                strstr(command->arguments, "PATTERN") && most == 1
                    ? "; a pattern of several names is given in quotes, so that the shell leaves it"
                : strcmp(command->name, "get") == 0
                    ? "; several buffers are NAME,NAME or PREFIX*, and a FILE that ends in .safetensors"
                    : "");
    }
    fprintf(stderr, "gpubuf: usage: gpubuf %s%s%s [OPTION...]\n", command->name, command->arguments[0] ? " " : "",
            command->arguments);
    return -1;
}

int gb_cli_options_check(const struct gb_cli_options *options, const struct gb_cli_command *command, int argc,
                         char **argv) {
    const struct gb_cli_verb *verb = argc > 0 ? gb_cli_verb_find(command, argv[0]) : NULL;
    bool bare = argc == 0 && has_verbs(command); /* of a word that is unknown the command says so */
    int i;

    if (argc < command->least || argc > most_of(command))
        return refuse_count(command, argc, argv);
    for (i = 0; i < GB_CLI_IDS; i++)
        if (options->given[i] && !gb_cli_option_common((enum gb_cli_option_id)i) &&
            (bare || !gb_cli_option_taken(command, verb, (enum gb_cli_option_id)i)))
            return refuse_taken(command, verb, i);
    if (options->given[GB_CLI_ID_parallel] && !options->hosts && !options->group)
        return gb_cli_options_idle(options, "parallel", "it goes with --hosts or --group");
    return 0;
}
