/* What could come next, for the shells: a candidate a line, or the line ":file" for the shell's own files. */
#include <string.h>

#include "cli/cli.h"
#include "cli/config/config.h"

#define PATIENCE_S 1 /* the user waits at a prompt */

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
