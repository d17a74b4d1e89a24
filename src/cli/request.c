/* Requests and their answers, as JSON. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

#define NO_ITEMS "the answer has no items; is this a gpubufd?"
#define PAGE "1000" /* items of a list that are asked for at a time */

int gb_cli_error(struct gb_cli *cli, int code, const char *format, ...) {
    va_list args;

    memset(&cli->error, 0, sizeof cli->error);
    cli->error.code = code;
    snprintf(cli->error.slug, sizeof cli->error.slug, "%s", gpubuf_code_slug(code));
    va_start(args, format);
    vsnprintf(cli->error.detail, sizeof cli->error.detail, format, args);
    va_end(args);
    return -1;
}

int gb_cli_name(struct gb_cli *cli, const char *text, struct gb_cli_name *ret) {
    const char *slash = strchr(text, '/');
    const char *name = slash != NULL ? slash + 1 : text;
    const char *session = slash != NULL ? text : cli->session;
    size_t n = slash != NULL ? (size_t)(slash - text) : strlen(session);

    if (n == 0 || n >= GPUBUF_NAME_SIZE || name[0] == '\0' || strlen(name) >= GPUBUF_NAME_SIZE ||
        strchr(name, '/') != NULL)
        return gb_cli_error(cli, GPUBUF_BAD_ARGUMENT,
                            "\"%s\" is no buffer: [SESSION/]NAME, each of at most %d characters", text,
                            GPUBUF_NAME_SIZE - 1);
    snprintf(ret->session, sizeof ret->session, "%.*s", (int)n, session);
    snprintf(ret->name, sizeof ret->name, "%s", name);
    return 0;
}

bool gb_cli_is_name(const char *text) {
    size_t n = strspn(text, GB_CLI_NAME_LETTERS);

    return n > 0 && text[n] == '\0' && n < GPUBUF_NAME_SIZE && strchr("._-", text[0]) == NULL;
}

int gb_cli_one_name(struct gb_cli *cli, const char *text, struct gb_cli_name *ret) {
    const char *command = cli->command->name;

    if (strcmp(command, "get") == 0 && strpbrk(text, "*?[,") != NULL)
        return gb_cli_error(cli, GPUBUF_BAD_ARGUMENT,
                            "\"%s\" is several buffers, which go into one FILE that ends in .safetensors: as a "
                            "beginning of names with * behind it, or as names with commas between them",
                            text);
    if (gb_cli_is_pattern(text))
        return gb_cli_error(cli, GPUBUF_BAD_ARGUMENT,
                            "%s takes no pattern: name one buffer (\"gpubuf ls '%s'\" lists those that match)", command,
                            text);
    return gb_cli_name(cli, text, ret);
}

int gb_cli_target(struct gb_cli *cli, char *ret, const char *format, ...) {
    size_t at = 0;
    va_list args;
    int rc = 0;

    va_start(args, format);
    while (*format != '\0' && rc == 0 && at + 1 < GB_CLI_PATH) {
        if (format[0] == '{' && format[1] == '}') {
            rc = gpubuf_escape(va_arg(args, const char *), ret + at, GB_CLI_PATH - at);
            at += rc == 0 ? strlen(ret + at) : 0;
            format += 2;
        } else {
            ret[at++] = *format++;
        }
    }
    va_end(args);
    if (rc < 0 || *format != '\0')
        return gb_cli_error(cli, GPUBUF_BAD_ARGUMENT, "a name is too long for a request");
    ret[at] = '\0';
    return 0;
}

json_t *gb_cli_request_with(struct gb_cli *cli, const char *method, const char *target, const char *header,
                            json_t *body) {
    const char *headers[3] = {NULL, NULL, NULL};
    const struct gpubuf_answer *answer;
    char *text = NULL;
    json_error_t why;
    json_t *value;
    int n = 0;
    int rc;

    if (header != NULL)
        headers[n++] = header;
    if (body != NULL) {
        headers[n++] = "Content-Type: application/json";
        text = json_dumps(body, JSON_COMPACT);
        json_decref(body);
    }
    if (body != NULL && text == NULL) {
        gb_cli_error(cli, GPUBUF_BAD_ARGUMENT, "the arguments cannot be written as JSON: they must be UTF-8");
        return NULL;
    }
    do
        rc = gpubuf_request(cli->client, method, target, headers, text, text != NULL ? strlen(text) : 0, &cli->error);
    while (rc < 0 && gb_cli_again(cli));
    free(text);
    if (rc < 0)
        return NULL;
    answer = gpubuf_answer_of(cli->client);
    if (answer->bytes == 0)
        return json_object();
    value = json_loadb(answer->body, answer->bytes, 0, &why);
    if (value == NULL && json_error_code(&why) == json_error_numeric_overflow)
        gb_cli_error(cli, GPUBUF_BAD_ANSWER,
                     "%s %s was answered with a number beyond 2^63 - 1 (%s); a newer gpubufd sends none", method,
                     target, why.text);
    else if (value == NULL)
        gb_cli_error(cli, GPUBUF_BAD_ANSWER, "%s %s was not answered with JSON; is this a gpubufd?", method, target);
    return value;
}

json_t *gb_cli_request(struct gb_cli *cli, const char *method, const char *target, json_t *body) {
    return gb_cli_request_with(cli, method, target, NULL, body);
}

/* Moves the items of one page; *ret_cursor is that of the next, or "". */
static int add_page(struct gb_cli *cli, json_t *items, json_t *page, char *ret_cursor) {
    json_t *found = json_object_get(page, "items");

    if (!json_is_array(found) || json_array_extend(items, found) < 0)
        return gb_cli_error(cli, GPUBUF_BAD_ANSWER, NO_ITEMS);
    snprintf(ret_cursor, GB_CLI_PATH, "%s", gb_cli_text(page, "next_cursor"));
    return 0;
}

json_t *gb_cli_list(struct gb_cli *cli, const char *target) {
    json_t *items = json_array();
    char cursor[GB_CLI_PATH] = "";
    char paged[GB_CLI_PATH];
    int rc = items != NULL ? 0 : gb_cli_error(cli, GPUBUF_NO_MEMORY, "out of memory");

    while (rc == 0) {
        char format[GB_CLI_PATH];
        json_t *page;

        snprintf(format, sizeof format, "%.2048s%climit=" PAGE "%s", target, strchr(target, '?') != NULL ? '&' : '?',
                 cursor[0] != '\0' ? "&cursor={}" : "");
        rc = gb_cli_target(cli, paged, format, cursor);
        page = rc == 0 ? gb_cli_request(cli, "GET", paged, NULL) : NULL;
        if (page == NULL)
            rc = -1;
        else
            rc = add_page(cli, items, page, cursor);
        json_decref(page);
        if (rc == 0 && cursor[0] == '\0')
            return items;
    }
    json_decref(items);
    return NULL;
}

json_t *gb_cli_items(struct gb_cli *cli, const char *target) {
    json_t *page = gb_cli_request(cli, "GET", target, NULL);
    json_t *items = json_incref(json_object_get(page, "items"));

    if (page != NULL && items == NULL)
        gb_cli_error(cli, GPUBUF_BAD_ANSWER, NO_ITEMS);
    json_decref(page);
    return items;
}

int gb_cli_show(struct gb_cli *cli, json_t *value, const struct gb_cli_column *columns, size_t count) {
    if (value == NULL)
        return gb_cli_failed(cli);
    if (cli->options.json && cli->several != NULL)
        json_array_append(cli->several, value);
    else if (cli->options.json)
        gb_cli_json(stdout, value);
    else if (columns != NULL)
        gb_cli_table(stdout, columns, count, value);
    else
        gb_cli_details(stdout, value);
    json_decref(value);
    return GB_CLI_DONE;
}

bool gb_cli_draws(const struct gb_cli *cli) {
    return !cli->options.quiet && cli->host == NULL && isatty(STDERR_FILENO);
}
