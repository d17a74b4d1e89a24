#include "cli/options.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/conf.h"
#include "base/nearest.h"
#include "cli/cli.h"
#include "cli/config.h"

#define LONG_ONLY 256 /* value of the first option without a letter */
#define DIGITS "0123456789"
#define GB_CLI_OPTION(type, field, name, letter, argument, words, help)                                                \
    {name, letter, argument, words, help, offsetof(struct gb_cli_options, field), GB_CLI_##type},
#define PATIENCE_S 1 /* the user waits at a prompt */

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

#define GB_CLI_VERB(command, name, options, help) {#command, name, options, help},
const struct gb_cli_verb gb_cli_verbs[] = {
#include "cli/verbs.def"
};
#undef GB_CLI_VERB
const size_t gb_cli_verbs_count = sizeof gb_cli_verbs / sizeof gb_cli_verbs[0];

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

    for (i = 0; i < sizeof words / sizeof words[0]; i++)
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
    fprintf(stderr, "\"%s%s; \"gpubuf --help\" lists them\n", meant != NULL ? "; " : "",
            meant != NULL ? meant : gb_nearest_hint(&nearest, "", hint));
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

const char *gb_cli_option_set(struct gb_cli_options *options, enum gb_cli_option_id id, const char *text) {
    const struct gb_cli_option_spec *spec = &gb_cli_options_all[id];
    void *value = (char *)options + spec->at;

    options->given[id] = true;
    switch (spec->type) {
    case GB_CLI_TEXT:
    case GB_CLI_FILE:
        *(const char **)value = text;
        return text[0] != '\0' ? NULL : "anything";
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

    if (fault != NULL) {
        fprintf(stderr, "gpubuf: --%s %s\n", gb_cli_options_all[id].name, fault);
        return -1;
    }
    if (wanted == NULL)
        return 0;
    fprintf(stderr, "gpubuf: --%s \"%s\" is not %s\n", gb_cli_options_all[id].name, text, wanted);
    return -1;
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

/* Options whose value or effect concerns a secret. A word that only begins like one of them is not taken for it: the
 * value behind that word may be meant for another. */
static bool exact(int id) {
    static const int ids[] = {
        GB_CLI_ID_token_file, GB_CLI_ID_plain_token, GB_CLI_ID_cert,   GB_CLI_ID_key,
        GB_CLI_ID_token,      GB_CLI_ID_etcd_user,   GB_CLI_ID_header, GB_CLI_ID_source_token_file};
    size_t i;

    for (i = 0; i < sizeof ids / sizeof ids[0]; i++)
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

    snprintf(shown, sizeof shown, "%.*s", length, word);
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

    if (spec != NULL && c == ':')
        fprintf(stderr, "gpubuf: --%s needs a value: %s\n", spec->name, spec->argument);
    else if (spec != NULL)
        fprintf(stderr, "gpubuf: --%s takes no value\n", spec->name);
    else if (optopt != 0)
        fprintf(stderr, "gpubuf: there is no option \"-%c\"; \"gpubuf --help\" lists them\n", optopt);
    else
        refuse_word(word + 2);
    return -1;
}

int gb_cli_options_read(int argc, char **argv, struct gb_cli_options *ret, int *ret_first) {
    struct option longs[GB_CLI_IDS + 1];
    char shorts[3 * GB_CLI_IDS + sizeof DIGITS + 1] = ":" DIGITS;
    char *at = shorts + strlen(shorts);
    const char *word;
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
    opterr = 0;
    optind = 0; /* start anew: tests parse more than once */
    while ((c = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
        word = argv[optarg != NULL && optarg == argv[optind - 1] ? optind - 2 : optind - 1];
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
        if (i < GB_CLI_IDS && set(ret, (enum gb_cli_option_id)i, optarg != NULL ? optarg : "") < 0)
            return -1;
    }
    *ret_first = optind;
    return 0;
}

/* Of a command with words, those of the word that is given; without one none. */
static const char *options_of(const struct gb_cli_command *command, const struct gb_cli_verb *verb) {
    size_t i;

    for (i = 0; verb == NULL && i < gb_cli_verbs_count; i++)
        if (is_of(&gb_cli_verbs[i], command))
            return "";
    return verb != NULL ? verb->options : command->options;
}

static int refuse_taken(const struct gb_cli_command *command, const struct gb_cli_verb *verb, int id) {
    const char *space = verb != NULL ? " " : "";
    const char *word = verb != NULL ? verb->name : "";
    const char *name = gb_cli_options_all[id].name;

    if (verb == NULL && gb_cli_option_taken(command, (enum gb_cli_option_id)id))
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
                strstr(command->arguments, "PATTERN") != NULL && most == 1
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
    const char *taken = options_of(command, verb);
    int i;

    if (argc < command->least || argc > most_of(command))
        return refuse_count(command, argc, argv);
    if (argc > 0 && verb == NULL) /* the command says that there is no such word */
        taken = command->options;
    for (i = 0; i < GB_CLI_IDS; i++)
        if (options->given[i] && !gb_cli_option_common((enum gb_cli_option_id)i) &&
            !gb_cli_has_word(taken, gb_cli_options_all[i].name))
            return refuse_taken(command, verb, i);
    if (options->given[GB_CLI_ID_parallel] && options->hosts == NULL && options->group == NULL)
        return gb_cli_options_idle(options, "parallel", "it goes with --hosts or --group");
    return 0;
}

/* --- help, from the lists ----------------------------------------------------------------------------------------- */

static const struct {
    const char *command;
    enum gb_cli_option_id option;
    const char *help;
} special[] = {
#define GB_CLI_OPTION_OF(command, field, help) {#command, GB_CLI_ID_##field, help},
#include "cli/options_of.def"
#undef GB_CLI_OPTION_OF
};

#define COLUMN 30
#define WIDTH 110

/* Prints words of text from column COLUMN on, each new line indented. */
static void put_words(FILE *out, const char *text) {
    size_t at = COLUMN;

    while (*text != '\0') {
        size_t n = strcspn(text, " ");

        if (at > COLUMN && at + 1 + n > WIDTH) {
            fprintf(out, "\n%*s", COLUMN, "");
            at = COLUMN;
        } else if (at > COLUMN) {
            putc(' ', out);
            at++;
        }
        fwrite(text, 1, n, out);
        at += n;
        text += n + (text[n] == ' ');
    }
    putc('\n', out);
}

static void put_line(FILE *out, const char *left, const char *right) {
    if (strlen(left) >= COLUMN)
        fprintf(out, "%s\n%*s", left, COLUMN, "");
    else
        fprintf(out, "%-*s", COLUMN, left);
    put_words(out, right);
}

/* In the command's own sense, if it has one. command may be NULL. */
static const char *help_on(const struct gb_cli_command *command, enum gb_cli_option_id id) {
    size_t i;

    for (i = 0; command != NULL && i < sizeof special / sizeof special[0]; i++)
        if (special[i].option == id && strcmp(special[i].command, command->name) == 0)
            return special[i].help;
    return gb_cli_options_all[id].help;
}

static void put_option(FILE *out, const struct gb_cli_command *command, enum gb_cli_option_id id) {
    const struct gb_cli_option_spec *spec = &gb_cli_options_all[id];
    char left[96];
    char letter[8] = "    ";

    if (spec->letter != 0)
        snprintf(letter, sizeof letter, "-%c, ", spec->letter);
    snprintf(left, sizeof left, "  %s--%s%s%s", letter, spec->name, spec->argument[0] ? " " : "", spec->argument);
    put_line(out, left, help_on(command, id));
}

static void put_options(FILE *out, const struct gb_cli_command *command, bool common) {
    int i;

    for (i = 0; i < GB_CLI_IDS; i++)
        if (gb_cli_option_common((enum gb_cli_option_id)i) == common &&
            (common || gb_cli_option_taken(command, (enum gb_cli_option_id)i)))
            put_option(out, command, (enum gb_cli_option_id)i);
}

#define NO_NOUN " (no ITEM)" /* ends the help of a word that stands alone, of a command whose others take one */

/* How a word is used, in usage[64], and what it does, in help[256]. It takes the "POOL..." of "[add|rm POOL...]",
 * unless its help has arguments of its own or says that it has none. */
static void describe(const struct gb_cli_command *command, const struct gb_cli_verb *verb, const char *before,
                     char *usage, char *help) {
    const char *noun = strchr(command->arguments, ' ');
    size_t own = gb_cli_verb_own(verb);
    const char *text = verb->help + own + (own > 0 ? 2 : 0);
    size_t n = strlen(text);
    size_t m = strlen(NO_NOUN);
    bool alone = n > m && strcmp(text + n - m, NO_NOUN) == 0;

    snprintf(help, 256, "%.*s", (int)(alone ? n - m : n), text);
    if (alone)
        snprintf(usage, 64, "%s%s", before, verb->name);
    else if (own > 0)
        snprintf(usage, 64, "%s%s %.*s", before, verb->name, (int)own, verb->help);
    else
        snprintf(usage, 64, "%s%s %.*s", before, verb->name, noun != NULL ? (int)strcspn(noun + 1, "]") : 0,
                 noun != NULL ? noun + 1 : "");
}

/* A line for each word. */
static void put_verbs(FILE *out, const struct gb_cli_command *command) {
    char left[64];
    char help[256];
    size_t found = 0;
    size_t i;

    for (i = 0; i < gb_cli_verbs_count; i++) {
        if (strcmp(gb_cli_verbs[i].command, command->name) != 0)
            continue;
        describe(command, &gb_cli_verbs[i], "  ", left, help);
        put_line(out, left, help);
        found++;
    }
    if (found > 0 && command->options[0] != '\0')
        fprintf(out, "\n\"gpubuf help %s WORD\" lists those of these options that the word takes.\n", command->name);
    if (found > 0)
        fputs("\n", out);
}

static void put_common(FILE *out) {
    fputs("\"gpubuf --help\" lists the options of all commands, such as --url, --session, --json and --timeout.\n",
          out);
}

static void help_command(FILE *out, const struct gb_cli_command *command) {
    fprintf(out, "Usage: gpubuf %s%s%s [OPTION...]\n\n", command->name, command->arguments[0] ? " " : "",
            command->arguments);
    put_line(out, command->name, command->help);
    fputs("\n", out);
    put_verbs(out, command);
    if (command->options[0] != '\0') {
        put_options(out, command, false);
        fputs("\n", out);
    }
    put_common(out);
}

static void help_verb(FILE *out, const struct gb_cli_command *command, const struct gb_cli_verb *verb) {
    char usage[64];
    char left[64];
    char help[256];
    int i;

    snprintf(left, sizeof left, "%s %s", command->name, verb->name);
    describe(command, verb, "", usage, help);
    fprintf(out, "Usage: gpubuf %s %s [OPTION...]\n\n", command->name, usage);
    put_line(out, left, help);
    fputs("\n", out);
    for (i = 0; i < GB_CLI_IDS; i++)
        if (gb_cli_has_word(verb->options, gb_cli_options_all[i].name))
            put_option(out, command, (enum gb_cli_option_id)i);
    if (verb->options[0] != '\0')
        fputs("\n", out);
    put_common(out);
}

void gb_cli_help(FILE *out, const struct gb_cli_command *command, const struct gb_cli_verb *verb) {
    char left[128];
    size_t i;

    if (verb != NULL) {
        help_verb(out, command, verb);
        return;
    }
    if (command != NULL) {
        help_command(out, command);
        return;
    }
    fputs("Usage: gpubuf COMMAND [ARGUMENT...] [OPTION...]\n\nPuts, gets and shares buffers of gpubufd.\n\nCommands:\n",
          out);
    for (i = 0; i < gb_cli_commands_count; i++) {
        snprintf(left, sizeof left, "  %s %s", gb_cli_commands[i].name, gb_cli_commands[i].arguments);
        put_line(out, left, gb_cli_commands[i].help);
    }
    fputs("\nOptions of all commands (\"gpubuf COMMAND --help\" lists the others):\n", out);
    put_options(out, NULL, true);
    fputs("\nExit status: 0 done; 1 refused or failed; 2 usage; 3 the daemon cannot be reached; 4 not found;\n"
          "130 interrupted, 143 terminated; with --hosts and --group 6 done on some of them, 7 on none. gpubuf(1) has "
          "the rest.\n",
          out);
}

/* Needs no daemon: cli->client is NULL. */
int gb_cli_run_help(struct gb_cli *cli, int argc, char **argv) {
    const struct gb_cli_command *command = argc > 0 ? gb_cli_command_find(argv[0]) : NULL;
    const struct gb_cli_verb *verb = NULL;

    if (argc > 0 && command == NULL) {
        gb_cli_command_unknown(argv[0]);
        return GB_CLI_USAGE;
    }
    if (argc > 1 && (verb = gb_cli_verb_find(command, argv[1])) == NULL) {
        gb_cli_verb_unknown(command, argv[1]);
        return GB_CLI_USAGE;
    }
    gb_cli_help(stdout, command, verb);
    return gb_cli_flush(cli, GB_CLI_DONE);
}

/* --- what could come next, for the shells: a candidate a line, or the line ":file" for the shell's own files ------ */

static void offer(const char *start, const char *candidate) {
    if (strncmp(candidate, start, strlen(start)) == 0)
        printf("%s\n", candidate);
}

static void offer_words(const char *start, const char *words) {
    char word[64];

    while (*words != '\0') {
        size_t n = strcspn(words, " ");

        snprintf(word, sizeof word, "%.*s", (int)n, words);
        offer(start, word);
        words += n + (words[n] == ' ');
    }
}

typedef json_t *list_fn(struct gb_cli *cli, const char *target);

/* Names that the daemon has. Silent when it does not answer. */
static void offer_listed(struct gb_cli *cli, list_fn *list, const char *start, const char *format, const char *key) {
    char target[GB_CLI_PATH];
    gpubuf_client *usual = cli->client;
    gpubuf_client *hasty;
    json_t *items;
    json_t *item;
    size_t i;

    cli->options.timeout = PATIENCE_S;
    if (gb_cli_target(cli, target, format, cli->session) < 0 || gb_cli_open(cli, NULL, NULL, &hasty) < 0)
        return;
    cli->client = hasty;
    items = list(cli, target);
    cli->client = usual;
    gpubuf_close(hasty);
    json_array_foreach(items, i, item) {
        offer(start, gb_cli_text(item, key));
    }
    json_decref(items);
}

static void offer_names(struct gb_cli *cli, const char *start, const char *format, const char *key) {
    offer_listed(cli, gb_cli_list, start, format, key);
}

/* "add|rm" */
static void offer_verbs(const char *start, const char *verbs) {
    char word[64];

    while (*verbs != '\0') {
        size_t n = strcspn(verbs, "|");

        snprintf(word, sizeof word, "%.*s", (int)n, verbs);
        offer(start, word);
        verbs += n + (verbs[n] == '|');
    }
}

/* Of the configuration file. */
static void offer_sections(struct gb_cli *cli, const char *start, unsigned kind) {
    size_t i;

    for (i = 0; i < cli->config->count; i++)
        if (cli->config->sections[i].kind == kind)
            offer(start, cli->config->sections[i].name);
}

static void offer_value(struct gb_cli *cli, const char *start, const char *what) {
    if (strncmp(what, "FILE", 4) == 0 || strcmp(what, "PATH") == 0 || strcmp(what, "DIR") == 0 ||
        strcmp(what, "SOURCE") == 0 || strcmp(what, "TARGET") == 0)
        puts(":file");
    if (strcmp(what, "NAME") == 0 || strcmp(what, "PATTERN") == 0 || strcmp(what, "SOURCE") == 0 ||
        strcmp(what, "TARGET") == 0)
        offer_names(cli, start, "/v1/sessions/{}/buffers", "name");
    else if (strcmp(what, "SESSION") == 0)
        offer_names(cli, start, "/v1/sessions", "name");
    else if (strcmp(what, "POOL") == 0)
        offer_names(cli, start, "/v1/sessions/{}/pools", "name");
    else if (strcmp(what, "STREAM") == 0)
        offer_names(cli, start, "/v1/sessions/{}/streams", "name");
    else if (strcmp(what, "OPERATION") == 0)
        offer_names(cli, start, "/v1/operations", "id");
    else if (strcmp(what, "EVENT") == 0)
        offer_names(cli, start, "/v1/sessions/{}/events", "name");
    else if (strcmp(what, "CHECKPOINT") == 0)
        offer_names(cli, start, "/v1/checkpoints", "name");
    else if (strcmp(what, "UPLOAD") == 0)
        offer_names(cli, start, "/v1/sessions/{}/uploads", "id");
    else if (strcmp(what, "LEASE") == 0)
        offer_names(cli, start, "/v1/leases", "lease");
    else if (strcmp(what, "ITEM") == 0) {
        offer_listed(cli, gb_cli_items, start, "/v1/fleet/nodes", "name");
        offer_names(cli, start, "/v1/fleet/sessions", "name");
    } else if (strcmp(what, "HOST") == 0)
        offer_sections(cli, start, GB_CLI_CONFIG_HOST);
    else if (strcmp(what, "GROUP") == 0)
        offer_sections(cli, start, GB_CLI_CONFIG_GROUP);
    else if (strcmp(what, "COMMAND") == 0) {
        size_t i;

        for (i = 0; i < gb_cli_commands_count; i++)
            offer(start, gb_cli_commands[i].name);
    } else if (strcmp(what, "METHOD") == 0)
        offer_words(start, "GET POST PUT PATCH DELETE HEAD");
    else if (strcmp(what, "rm") == 0 || strchr(what, '|') != NULL)
        offer_verbs(start, what);
}

/* The word of "FILE [NAME]" that stands for the n-th argument; the last one stands for all that follow. */
static void argument_name(const char *arguments, int n, char *ret, size_t size) {
    ret[0] = '\0';
    for (;; n--) {
        size_t length = strcspn(arguments, " :");
        size_t i;
        size_t at = 0;

        if (length == 0)
            return;
        for (i = 0; i < length && at + 1 < size; i++)
            if (strchr("[].", arguments[i]) == NULL)
                ret[at++] = arguments[i];
        ret[at] = '\0';
        arguments += length + (arguments[length] == ' ');
        if (n == 0 || *arguments == '\0' || *arguments == ':')
            return;
    }
}

static const struct gb_cli_option_spec *option_of(const char *word) {
    int i;

    for (i = 0; i < GB_CLI_IDS; i++)
        if ((strncmp(word, "--", 2) == 0 && strcmp(word + 2, gb_cli_options_all[i].name) == 0) ||
            (word[0] == '-' && gb_cli_options_all[i].letter != 0 && word[1] == gb_cli_options_all[i].letter &&
             !word[2]))
            return &gb_cli_options_all[i];
    return NULL;
}

static void offer_words_of(const char *start, const struct gb_cli_command *command) {
    size_t i;

    for (i = 0; i < gb_cli_verbs_count; i++)
        if (strcmp(gb_cli_verbs[i].command, command->name) == 0)
            offer(start, gb_cli_verbs[i].name);
}

static void offer_options(const char *start, const struct gb_cli_command *command, const struct gb_cli_verb *verb) {
    char name[40];
    int i;

    for (i = 0; i < GB_CLI_IDS; i++)
        if (gb_cli_option_taken(command, (enum gb_cli_option_id)i) &&
            (verb == NULL || gb_cli_option_common((enum gb_cli_option_id)i) ||
             gb_cli_has_word(verb->options, gb_cli_options_all[i].name))) {
            snprintf(name, sizeof name, "--%s", gb_cli_options_all[i].name);
            offer(start, name);
        }
}

int gb_cli_run_complete(struct gb_cli *cli, int argc, char **argv) {
    const struct gb_cli_command *command = NULL;
    const struct gb_cli_command *of = NULL;       /* the command that help is asked on */
    const struct gb_cli_verb *verb = NULL;        /* of the command */
    const struct gb_cli_option_spec *open = NULL; /* the option whose value comes next */
    char what[96] = "COMMAND";
    const char *last = argc > 0 ? argv[argc - 1] : "";
    int position = 0;
    int i;

    for (i = 0; i + 1 < argc; i++) {
        const struct gb_cli_option_spec *option = open == NULL ? option_of(argv[i]) : NULL;

        if (open != NULL) {
            if (strcmp(open->name, "session") == 0)
                cli->session = argv[i];
            open = NULL;
        } else if (option != NULL) {
            open = option->type != GB_CLI_FLAG ? option : NULL;
        } else if (command == NULL) {
            command = gb_cli_command_find(argv[i]);
        } else {
            of = position == 0 ? gb_cli_command_find(argv[i]) : of;
            verb = position == 0 ? gb_cli_verb_find(command, argv[i]) : verb;
            position++;
        }
    }
    if (open != NULL && open->words[0] != '\0')
        offer_words(last, open->words);
    else if (open != NULL)
        offer_value(cli, last, open->argument);
    else if (last[0] == '-')
        offer_options(last, command, verb);
    else if (command != NULL && command->run == gb_cli_run_help && of != NULL)
        offer_words_of(last, of);
    else {
        if (verb != NULL && gb_cli_verb_own(verb) > 0)
            argument_name(verb->help, position - 1, what, sizeof what);
        else if (command != NULL)
            argument_name(command->arguments, position, what, sizeof what);
        if (strcmp(what, "PATH") != 0) /* of a request, not of a file */
            offer_value(cli, last, what);
    }
    return GB_CLI_DONE;
}
