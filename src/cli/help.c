/* What the command line says of itself: help, from the lists, and what could come next, for the shells. Nothing
 * here names a command or an option: the .def files do. Completion asks the daemon for names for a second at most, and
 * is silent when that fails. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cli/cli.h"
#include "cli/config.h"

#define PATIENCE_S 1 /* the user waits at a prompt */

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

static void put_line(FILE *out, const char *left, const char *right) {
    gb_put_help(out, left, right, COLUMN, WIDTH);
}

/* In the command's own sense, if it has one. command may be NULL. */
static const char *help_on(const struct gb_cli_command *command, enum gb_cli_option_id id) {
    size_t i;

    for (i = 0; command && i < sizeof(special) / sizeof(special[0]); i++)
        if (special[i].option == id && strcmp(special[i].command, command->name) == 0)
            return special[i].help;
    return gb_cli_options_all[id].help;
}

static void put_option(FILE *out, const struct gb_cli_command *command, enum gb_cli_option_id id) {
    const struct gb_cli_option_spec *spec = &gb_cli_options_all[id];
    char left[96];
    char letter[8] = "    ";

    if (spec->letter != 0)
        snprintf(letter, sizeof(letter), "-%c, ", spec->letter);
    snprintf(left, sizeof(left), "  %s--%s%s%s", letter, spec->name, spec->argument[0] ? " " : "", spec->argument);
    put_line(out, left, help_on(command, id));
}

/* Whether it goes with the command, or with its word if verb is not NULL; without a command: with all commands. */
static bool goes(const struct gb_cli_command *command, const struct gb_cli_verb *verb, int id) {
    return command ? gb_cli_option_taken(command, verb, (enum gb_cli_option_id)id)
                   : gb_cli_option_common((enum gb_cli_option_id)id);
}

/* Of those that go, a line each; a command's end with an empty line. */
static void put_options(FILE *out, const struct gb_cli_command *command, const struct gb_cli_verb *verb) {
    bool any = false;
    int i;

    for (i = 0; i < GB_CLI_IDS; i++)
        if (goes(command, verb, i)) {
            put_option(out, command, (enum gb_cli_option_id)i);
            any = true;
        }
    if (any && command)
        fputs("\n", out);
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
        snprintf(usage, 64, "%s%s %.*s", before, verb->name, noun ? (int)strcspn(noun + 1, "]") : 0,
                 noun ? noun + 1 : "");
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
    for (i = 0; found > 0 && i < GB_CLI_IDS; i++)
        if (goes(command, NULL, (int)i)) {
            fprintf(out, "\n\"gpubuf help %s WORD\" lists those of these options that the word takes.\n",
                    command->name);
            break;
        }
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
    put_options(out, command, NULL);
    put_common(out);
}

static void help_verb(FILE *out, const struct gb_cli_command *command, const struct gb_cli_verb *verb) {
    char usage[64];
    char left[64];
    char help[256];

    snprintf(left, sizeof(left), "%s %s", command->name, verb->name);
    describe(command, verb, "", usage, help);
    fprintf(out, "Usage: gpubuf %s %s [OPTION...]\n\n", command->name, usage);
    put_line(out, left, help);
    fputs("\n", out);
    put_options(out, command, verb);
    put_common(out);
}

void gb_cli_help(FILE *out, const struct gb_cli_command *command, const struct gb_cli_verb *verb) {
    char left[128];
    size_t i;

    if (verb) {
        help_verb(out, command, verb);
        return;
    }
    if (command) {
        help_command(out, command);
        return;
    }
    fputs("Usage: gpubuf COMMAND [ARGUMENT...] [OPTION...]\n\nPuts, gets and shares buffers of gpubufd.\n\nCommands:\n",
          out);
    for (i = 0; i < gb_cli_commands_count; i++) {
        snprintf(left, sizeof(left), "  %s %s", gb_cli_commands[i].name, gb_cli_commands[i].arguments);
        put_line(out, left, gb_cli_commands[i].help);
    }
    fputs("\nOptions of all commands (\"gpubuf COMMAND --help\" lists the others):\n", out);
    put_options(out, NULL, NULL);
    fputs("\nExit status: 0 done; 1 refused or failed; 2 usage; 3 the daemon cannot be reached; 4 not found;\n"
          "130 interrupted, 143 terminated; with --hosts and --group 6 done on some of them, 7 on none. gpubuf(1) has "
          "the rest.\n",
          out);
}

/* Needs no daemon: cli->client is NULL. */
int gb_cli_run_help(struct gb_cli *cli, int argc, char **argv) {
    const struct gb_cli_command *command = argc > 0 ? gb_cli_command_find(argv[0]) : NULL;
    const struct gb_cli_verb *verb = NULL;

    if (argc > 0 && !command) {
        gb_cli_command_unknown(argv[0]);
        return GB_CLI_USAGE;
    }
    if (argc > 1 && !(verb = gb_cli_verb_find(command, argv[1]))) {
        gb_cli_verb_unknown(command, argv[1]);
        return GB_CLI_USAGE;
    }
    gb_cli_help(stdout, command, verb);
    return gb_cli_flush(cli, GB_CLI_DONE);
}

/* --- what could come next: a candidate a line, or the line ":file" for the shell's own files ---------------------- */

static void offer(const char *start, const char *candidate) {
    if (strncmp(candidate, start, strlen(start)) == 0)
        printf("%s\n", candidate);
}

static void offer_words(const char *start, const char *words) {
    char word[64];

    while (*words != '\0') {
        size_t n = strcspn(words, " ");

        snprintf(word, sizeof(word), "%.*s", (int)n, words);
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

        snprintf(word, sizeof(word), "%.*s", (int)n, verbs);
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
    else if (strcmp(what, "rm") == 0 || strchr(what, '|'))
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
            if (!strchr("[].", arguments[i]))
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
        if (goes(NULL, NULL, i) || (command && goes(command, verb, i))) {
            snprintf(name, sizeof(name), "--%s", gb_cli_options_all[i].name);
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
        const struct gb_cli_option_spec *option = !open ? option_of(argv[i]) : NULL;

        if (open) {
            if (strcmp(open->name, "session") == 0)
                cli->session = argv[i];
            open = NULL;
        } else if (option) {
            open = option->type != GB_CLI_FLAG ? option : NULL;
        } else if (!command) {
            command = gb_cli_command_find(argv[i]);
        } else {
            of = position == 0 ? gb_cli_command_find(argv[i]) : of;
            verb = position == 0 ? gb_cli_verb_find(command, argv[i]) : verb;
            position++;
        }
    }
    if (open && open->words[0] != '\0')
        offer_words(last, open->words);
    else if (open)
        offer_value(cli, last, open->argument);
    else if (last[0] == '-')
        offer_options(last, command, verb);
    else if (command && command->run == gb_cli_run_help && of)
        offer_words_of(last, of);
    else {
        if (verb && gb_cli_verb_own(verb) > 0)
            argument_name(verb->help, position - 1, what, sizeof(what));
        else if (command)
            argument_name(command->arguments, position, what, sizeof(what));
        if (strcmp(what, "PATH") != 0) /* of a request, not of a file */
            offer_value(cli, last, what);
    }
    return GB_CLI_DONE;
}
