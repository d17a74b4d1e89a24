/* The help text, from the two lists. */
#include <string.h>

#include "cli/options.h"

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

static void put_option(FILE *out, const struct gb_cli_option_spec *spec) {
    char left[96];
    char letter[8] = "    ";

    if (spec->letter != 0)
        snprintf(letter, sizeof letter, "-%c, ", spec->letter);
    snprintf(left, sizeof left, "  %s--%s%s%s", letter, spec->name, spec->argument[0] ? " " : "", spec->argument);
    put_line(out, left, spec->help);
}

static void put_options(FILE *out, const struct gb_cli_command *command, bool common) {
    int i;

    for (i = 0; i < GB_CLI_IDS; i++)
        if (gb_cli_option_common((enum gb_cli_option_id)i) == common &&
            (common || gb_cli_option_taken(command, (enum gb_cli_option_id)i)))
            put_option(out, &gb_cli_options_all[i]);
}

static void help_command(FILE *out, const struct gb_cli_command *command) {
    fprintf(out, "Usage: gpubuf %s%s%s [OPTION...]\n\n", command->name, command->arguments[0] ? " " : "",
            command->arguments);
    put_line(out, command->name, command->help);
    fputs("\n", out);
    if (command->options[0] != '\0') {
        put_options(out, command, false);
        fputs("\n", out);
    }
    fputs("Options of all commands:\n", out);
    put_options(out, NULL, true);
}

void gb_cli_help(FILE *out, const struct gb_cli_command *command) {
    char left[64];
    size_t i;

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
          "130 interrupted, 143 terminated; with --hosts 6 done on some of them, 7 on none. gpubuf(1) has the rest.\n",
          out);
}
