/* Checkpoints: list, add, show, verify, restore, rm. A verb is a line of the table at the end: the request for one
 * checkpoint, and what a table shows of its answer. get and put are those of transfer/checkpoint_folder.c. */
#include <string.h>

#include "cli/cli.h"
#include "cli/transfer/files.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

#define CHECKPOINT "/v1/checkpoints/{}"

static const struct gb_cli_column listed[] = {
    {"NAME", "name", GB_CLI_FORM_TEXT},         {"SESSION", "session", GB_CLI_FORM_TEXT},
    {"STATE", "state", GB_CLI_FORM_TEXT},       {"BUFFERS", "buffers", GB_CLI_FORM_COUNT},
    {"BYTES", "bytes", GB_CLI_FORM_BYTES},      {"DAMAGED", "damaged_files", GB_CLI_FORM_COUNT},
    {"AS OF (UTC)", "as_of", GB_CLI_FORM_TIME},
};
static const struct gb_cli_column made[] = {
    {"NAME", "name", GB_CLI_FORM_TEXT},
    {"SESSION", "session", GB_CLI_FORM_TEXT},
    {"BUFFERS", "buffers", GB_CLI_FORM_COUNT},
    {"BYTES", "bytes", GB_CLI_FORM_BYTES},
    {"LINKED", "linked_bytes", GB_CLI_FORM_BYTES},
    {"WRITTEN", "written_bytes", GB_CLI_FORM_BYTES},
    {"SKIPPED", "skipped_buffers", GB_CLI_FORM_COUNT},
    {"AS OF (UTC)", "as_of", GB_CLI_FORM_TIME},
};
static const struct gb_cli_column verified[] = {
    {"NAME", "name", GB_CLI_FORM_TEXT},
    {"MATCH", "match", GB_CLI_FORM_FLAG},
    {"BUFFERS", "buffers", GB_CLI_FORM_COUNT},
    {"BYTES", "bytes", GB_CLI_FORM_BYTES},
    {"DAMAGED", "damaged_buffers", GB_CLI_FORM_COUNT},
};
static const struct gb_cli_column restored[] = {
    {"NAME", "checkpoint", GB_CLI_FORM_TEXT},          {"SESSION", "session", GB_CLI_FORM_TEXT},
    {"BUFFERS", "buffers", GB_CLI_FORM_COUNT},         {"BYTES", "bytes", GB_CLI_FORM_BYTES},
    {"REPLACED", "replaced", GB_CLI_FORM_COUNT},       {"LOADED", "loaded", GB_CLI_FORM_COUNT},
    {"SKIPPED", "skipped_buffers", GB_CLI_FORM_COUNT},
};

/* --- requests ----------------------------------------------------------------------------------------------------- */

/* The names of --only. */
static int set_only(struct gb_cli *cli, json_t *body) {
    const char *at = cli->options.only;
    json_t *names;

    if (!at)
        return 0;
    names = json_array();
    for (;;) {
        size_t n = strcspn(at, ",");
        json_t *name = json_stringn(at, n);

        if (n == 0 || !name) {
            json_decref(name);
            json_decref(names);
            return gb_cli_error(cli, GPUBUF_BAD_ARGUMENT, "--only is names with commas between them, such as a,b");
        }
        json_array_append_new(names, name);
        if (at[n] == '\0')
            break;
        at += n + 1;
    }
    json_object_set_new(body, "names", names);
    return 0;
}

static json_t *add(struct gb_cli *cli, const char *name) {
    char target[GB_CLI_PATH];
    json_t *body;

    if (gb_cli_target(cli, target, "/v1/sessions/{}/checkpoints", cli->session) < 0)
        return NULL;
    body = json_pack("{s:s}", "name", name);
    if (set_only(cli, body) < 0) {
        json_decref(body);
        return NULL;
    }
    return gb_cli_request_long(cli, target, body);
}

/* Those of a manifest, without the checksums of their blocks, which are for programs. */
static json_t *entries_of(json_t *manifest) {
    json_t *entries = json_object_get(manifest, "entries");
    json_t *entry;
    size_t i;

    json_array_foreach(entries, i, entry) json_object_del(entry, "blocks");
    return entries;
}

static json_t *show(struct gb_cli *cli, const char *name) {
    char target[GB_CLI_PATH];

    json_t *checkpoint = NULL;
    json_t *manifest;

    if (gb_cli_target(cli, target, CHECKPOINT, name) == 0)
        checkpoint = gb_cli_request(cli, "GET", target, NULL);
    if (!checkpoint || strcmp(gb_cli_text(checkpoint, "state"), "complete") != 0 ||
        gb_cli_target(cli, target, CHECKPOINT "/files/manifest.json", name) < 0)
        return checkpoint;
    manifest = gb_cli_request(cli, "GET", target, NULL);
    if (manifest)
        json_object_set(checkpoint, "entries", entries_of(manifest));
    else
        json_decref(checkpoint);
    checkpoint = manifest ? checkpoint : NULL;
    json_decref(manifest);
    return checkpoint;
}

static json_t *verify(struct gb_cli *cli, const char *name) {
    char target[GB_CLI_PATH];
    json_t *answer;

    if (gb_cli_target(cli, target, CHECKPOINT "/verify", name) < 0)
        return NULL;
    answer = gb_cli_request_long(cli, target, json_object());
    if (answer)
        json_object_set_new(answer, "name", json_string(name));
    return answer;
}

static int check_load(struct gb_cli *cli) {
    const char *load = cli->options.load;

    if (load && strcmp(load, "lazy") != 0 && strcmp(load, "eager") != 0)
        return gb_cli_error(cli, GPUBUF_BAD_ARGUMENT, "--load is lazy or eager");
    return 0;
}

static json_t *restore(struct gb_cli *cli, const char *name) {
    char target[GB_CLI_PATH];
    json_t *body = json_object();

    if (check_load(cli) < 0 || set_only(cli, body) < 0 || gb_cli_target(cli, target, CHECKPOINT "/restore", name) < 0) {
        json_decref(body);
        return NULL;
    }
    return gb_cli_request_long(cli, target, body);
}

static json_t *remove_one(struct gb_cli *cli, const char *name) {
    char target[GB_CLI_PATH];
    json_t *answer;

    if (gb_cli_target(cli, target, CHECKPOINT, name) < 0)
        return NULL;
    answer = gb_cli_request(cli, "DELETE", target, NULL);
    json_decref(answer);
    return answer ? json_string(name) : NULL;
}

/* columns: NULL prints all of each; told: the list of an answer that has a table of its own, with its title. */
static const struct verb {
    const char *name;
    json_t *(*run)(struct gb_cli *cli, const char *name);
    const struct gb_cli_column *columns;
    size_t count;
    const char *told;
    const char *title;
} verbs[] = {
    {"add", add, made, COUNT(made), "skipped", "SKIPPED"},
    {"show", show, NULL, 0, NULL, NULL},
    {"verify", verify, verified, COUNT(verified), "damaged", "DAMAGED"},
    {"restore", restore, restored, COUNT(restored), "skipped", "NOT LOADED"},
    {"rm", remove_one, NULL, 0, NULL, NULL},
};

/* --- what is printed ---------------------------------------------------------------------------------------------- */

static void put_told(const struct verb *verb, json_t *answer) {
    const struct gb_cli_column columns[] = {
        {verb->title, "buffer", GB_CLI_FORM_TEXT},
        {"WHY", "code", GB_CLI_FORM_TEXT},
    };
    json_t *names = json_object_get(answer, verb->told);

    if (json_array_size(names) == 0)
        return;
    putchar('\n');
    gb_cli_table(stdout, columns, COUNT(columns), names);
}

static void put_shown(json_t *checkpoint) {
    static const struct gb_cli_column columns[] = {
        {"BUFFER", "buffer", GB_CLI_FORM_TEXT},         {"BYTES", "bytes", GB_CLI_FORM_BYTES},
        {"GEN", "generation", GB_CLI_FORM_COUNT},       {"DTYPE", "dtype", GB_CLI_FORM_TEXT},
        {"DURABILITY", "durability", GB_CLI_FORM_TEXT}, {"FILE", "file", GB_CLI_FORM_TEXT},
    };
    json_t *entries = json_incref(json_object_get(checkpoint, "entries"));

    json_object_del(checkpoint, "entries");
    gb_cli_details(stdout, checkpoint);
    if (json_array_size(entries) > 0) {
        putchar('\n');
        gb_cli_table(stdout, columns, COUNT(columns), entries);
    }
    json_decref(entries);
}

static void put(struct gb_cli *cli, const struct verb *verb, json_t *answers) {
    json_t *answer;
    size_t i;

    if (cli->options.json) {
        gb_cli_json(stdout, answers);
        return;
    }
    if (verb->columns && !cli->options.quiet)
        gb_cli_table(stdout, verb->columns, verb->count, answers);
    json_array_foreach(answers, i, answer) {
        if (verb->run == show && i > 0)
            putchar('\n');
        if (verb->run == show)
            put_shown(answer);
        else if (verb->told && !cli->options.quiet)
            put_told(verb, answer);
    }
}

/* What failed of an answer; NULL: nothing. */
static const char *failure(const struct verb *verb, json_t *answer) {
    if (json_is_false(json_object_get(answer, "match")))
        return "does not have the bytes that were put into it";
    if (verb->run == restore && gb_cli_number(answer, "skipped_buffers") > 0)
        return "is restored, and not all of it could be loaded";
    return NULL;
}

/* The exit status. The first that failed is named, unless the JSON says it. */
static int judge(struct gb_cli *cli, const struct verb *verb, json_t *answers) {
    json_t *answer;
    size_t i;

    json_array_foreach(answers, i, answer) {
        const char *what = failure(verb, answer);

        if (what && cli->options.json)
            return GB_CLI_FAILED;
        if (what)
            return gb_cli_refused(cli, GB_CLI_FAILED, "%s %s",
                                  gb_cli_text(answer, verb->run == restore ? "checkpoint" : "name"), what);
    }
    return GB_CLI_DONE;
}

/* --- the command -------------------------------------------------------------------------------------------------- */

static int run(struct gb_cli *cli, const struct verb *verb, int argc, char **argv) {
    json_t *answers = json_array();
    int r = GB_CLI_DONE;
    int i;

    for (i = 0; i < argc && r == GB_CLI_DONE; i++) {
        json_t *answer = verb->run(cli, argv[i]);

        if (!answer)
            r = gb_cli_failed(cli);
        else
            json_array_append_new(answers, answer);
    }
    if (r == GB_CLI_DONE) {
        put(cli, verb, answers);
        r = judge(cli, verb, answers);
    }
    json_decref(answers);
    return r;
}

/* Those of all sessions, or of the one that --session names. */
static int list(struct gb_cli *cli) {
    const char *session = cli->options.session;
    char target[GB_CLI_PATH];

    if (gb_cli_target(cli, target, session ? "/v1/checkpoints?session={}" : "/v1/checkpoints", session) < 0)
        return gb_cli_failed(cli);
    return gb_cli_show(cli, gb_cli_list(cli, target), listed, COUNT(listed));
}

int gb_cli_run_checkpoints(struct gb_cli *cli, int argc, char **argv) {
    size_t i;

    if (argc == 0)
        return list(cli);
    if (strcmp(argv[0], "get") == 0 || strcmp(argv[0], "put") == 0)
        return gb_cli_copy_folder(cli, argc, argv);
    for (i = 0; argc > 1 && i < COUNT(verbs); i++)
        if (strcmp(argv[0], verbs[i].name) == 0)
            return run(cli, &verbs[i], argc - 1, argv + 1);
    return gb_cli_refused(cli, GB_CLI_USAGE, "\"gpubuf %s\" lists; else it is gpubuf %s %s", cli->command->name,
                          cli->command->name, cli->command->arguments);
}
