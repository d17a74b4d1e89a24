/* Bytes on disk: store, load, storage. */
#include "cli/cli.h"

static int end_each(struct gb_cli *cli, json_t *answers, int status) {
    if (cli->options.json && status == GB_CLI_DONE)
        gb_cli_json(stdout, answers);
    json_decref(answers);
    return status;
}

/* arg: the array of the answers, as of load_one. */
static int store_one(struct gb_cli *cli, const char *text, void *arg) {
    char target[GB_CLI_PATH];
    json_t *answer = NULL;
    char size[24];

    if (gb_cli_buffer_target(cli, text, "/store", target) == 0)
        answer = gb_cli_request(cli, "POST", target, json_object());
    if (answer == NULL)
        return gb_cli_failed(cli);
    json_object_set_new(answer, "buffer", json_string(text));
    if (!cli->options.json && !cli->options.quiet) {
        gb_cli_put(stdout, text);
        printf("  %s  generation %.0f on disk  %s\n", gb_cli_bytes_text((uint64_t)gb_cli_number(answer, "bytes"), size),
               gb_cli_number(answer, "stored_generation"),
               json_is_true(json_object_get(answer, "wrote")) ? "written" : "nothing to write");
    }
    json_array_append_new(arg, answer);
    return GB_CLI_DONE;
}

int gb_cli_run_store(struct gb_cli *cli, int argc, char **argv) {
    json_t *answers = json_array();

    return end_each(cli, answers, gb_cli_each_buffer(cli, argc, argv, store_one, answers));
}

static int load_one(struct gb_cli *cli, const char *text, void *arg) {
    const struct gpubuf_answer *told = gpubuf_answer_of(cli->client);
    struct gb_cli_name name;
    json_t *answer;

    if (gb_cli_name(cli, text, &name) < 0 ||
        gpubuf_buffer_load(cli->client, name.session, name.name, NULL, NULL, &cli->error) < 0)
        return gb_cli_failed(cli);
    answer = json_loadb(told->body, told->bytes, 0, NULL);
    json_array_append(arg, answer);
    if (!cli->options.json)
        return gb_cli_show_buffer(cli, answer);
    json_decref(answer);
    return GB_CLI_DONE;
}

int gb_cli_run_load(struct gb_cli *cli, int argc, char **argv) {
    json_t *answers = json_array();

    return end_each(cli, answers, gb_cli_each_buffer(cli, argc, argv, load_one, answers));
}

int gb_cli_run_storage(struct gb_cli *cli, int argc, char **argv) {
    (void)argc;
    (void)argv;
    return gb_cli_show(cli, gb_cli_request(cli, "GET", "/v1/storage", NULL), NULL, 0);
}
