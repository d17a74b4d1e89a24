/* The help text, from the two lists. */
#include <string.h>

#include "cli/cli.h"

static const struct {
    const char *command;
    enum gb_cli_option_id option;
    const char *help;
} options_of[] = {
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

    for (i = 0; command != NULL && i < sizeof options_of / sizeof options_of[0]; i++)
        if (options_of[i].option == id && strcmp(options_of[i].command, command->name) == 0)
            return options_of[i].help;
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
