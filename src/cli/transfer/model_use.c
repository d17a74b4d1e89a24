/* What commands of one buffer do with the name of a model in several files: rm, seal, switch, info, and put and get of
 * one tensor. A link to an index, or a copy of it, is a model of another name that reads the same shards. */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/transfer/files.h"
#include "cli/transfer/models.h"

#define BUFFER "/v1/sessions/{}/buffers/{}"
#define ENDING ".index"

/* --- rm: who else reads the shards -------------------------------------------------------------------------------- */

/* All buffers that are called as shards of the model, of every version, as "shards" of a document. NULL with cli->error
 * set. The caller's. */
static json_t *own_shards(struct gb_cli *cli, const struct gb_cli_name *name) {
    json_t *shards = json_array();
    char target[GB_CLI_PATH];
    json_t *items = NULL;
    json_t *item;
    size_t i;

    if (gb_cli_target(cli, target, "/v1/sessions/{}/buffers?prefix={}", name->session, name->name) == 0)
        items = gb_cli_list(cli, target);
    if (!items) {
        json_decref(shards);
        return NULL;
    }
    json_array_foreach(items, i, item) {
        if (gb_cli_model_version(gb_cli_text(item, "name"), name->name) > 0)
            json_array_append_new(shards, json_pack("{s:O}", "buffer", json_object_get(item, "name")));
    }
    json_decref(items);
    return json_pack("{s:o}", "shards", shards);
}

static bool share(json_t *document, json_t *other) {
    json_t *shard;
    json_t *its;
    size_t i;
    size_t j;

    json_array_foreach(json_object_get(document, "shards"), i, shard) {
        json_array_foreach(json_object_get(other, "shards"), j, its) {
            if (strcmp(gb_cli_text(shard, "buffer"), gb_cli_text(its, "buffer")) == 0)
                return true;
        }
    }
    return false;
}

/* Whether the buffer is an index, not name's own, that lists some of the shards. One that cannot be read lists none. */
static bool reads(struct gb_cli *cli, const struct gb_cli_name *name, json_t *index, json_t *own) {
    struct gb_cli_name other = *name;
    json_t *document;
    bool does;

    snprintf(other.name, sizeof(other.name), "%.*s", (int)(strlen(gb_cli_text(index, "name")) - strlen(ENDING)),
             gb_cli_text(index, "name"));
    if (strcmp(other.name, name->name) == 0)
        return false;
    document = gb_cli_model_read(cli, &other, NULL);
    does = document && share(own, document);
    json_decref(document);
    return does;
}

/* Refuses while the index of another model of the session, as a link, names one of these shards. The exit status. */
static int check_unread(struct gb_cli *cli, const struct gb_cli_name *name, json_t *own) {
    char pattern[2 * GPUBUF_NAME_SIZE];
    const char *reader = NULL;
    json_t *items;
    json_t *item;
    size_t i;
    int r = 0;

    snprintf(pattern, sizeof(pattern), "%s/*" ENDING, name->session);
    items = gb_cli_matching(cli, pattern, "");
    if (!items)
        return gb_cli_failed(cli);
    json_array_foreach(items, i, item) {
        if (!reader && reads(cli, name, item, own))
            reader = gb_cli_text(item, "name");
    }
    if (reader) {
        int n = (int)(strlen(reader) - strlen(ENDING));

        r = gb_cli_refused(
            cli, GB_CLI_FAILED,
            "\"%s\" is in use as \"%.*s\", whose index %s names the same files: \"gpubuf rm %.*s\" first, "
            "or \"gpubuf switch %s OTHER" ENDING "\"; nothing was deleted",
            name->name, n, reader, reader, n, reader, reader);
    }
    json_decref(items);
    return r;
}

int gb_cli_rm_model(struct gb_cli *cli, const struct gb_cli_name *name) {
    json_t *own = own_shards(cli, name);
    struct gb_cli_name index;
    char target[GB_CLI_PATH];
    json_t *answer = NULL;
    int r = own ? check_unread(cli, name, own) : gb_cli_failed(cli);

    if (r != GB_CLI_DONE) {
        json_decref(own);
        return r;
    }
    if (gb_cli_model_index(cli, name, &index) == 0 &&
        gb_cli_target(cli, target, BUFFER, index.session, index.name) == 0)
        answer = gb_cli_request(cli, "DELETE", target, NULL);
    if (!answer || gb_cli_model_drop(cli, name, own) > 0)
        r = gb_cli_failed(cli);
    json_decref(answer);
    json_decref(own);
    return r;
}

int gb_cli_model_absent(struct gb_cli *cli, const struct gb_cli_name *name) {
    struct gpubuf_error told = cli->error;
    json_t *own = own_shards(cli, name);
    json_t *shards = json_object_get(own, "shards");
    int r;

    if (json_array_size(shards) == 0) {
        cli->error = told;
        r = gb_cli_failed(cli);
    } else {
        gb_cli_error(cli, GPUBUF_BUFFER_NOT_FOUND,
                     "there is neither a buffer \"%s\" nor the index of a model, %s" ENDING
                     "; of its files %zu are left, such as %s: \"gpubuf rm '%s.[0-9]*'\" deletes them",
                     name->name, name->name, json_array_size(shards), gb_cli_text(json_array_get(shards, 0), "buffer"),
                     name->name);
        cli->error.status = 404;
        r = gb_cli_failed(cli);
    }
    json_decref(own);
    return r;
}

/* --- put of one buffer -------------------------------------------------------------------------------------------- */

int gb_cli_model_hides(struct gb_cli *cli, const struct gb_cli_name *name) {
    json_t *document = gb_cli_model_read(cli, name, NULL);
    size_t files = json_array_size(json_object_get(document, "shards"));

    json_decref(document);
    if (!document)
        return 0;
    return gb_cli_refused(cli, GB_CLI_FAILED,
                          "\"%s\" is a model of %zu files, and this one of a single file would be a buffer beside it: "
                          "\"gpubuf rm %s\" makes room for the name; nothing was uploaded",
                          name->name, files, name->name);
}

/* --- a tensor ----------------------------------------------------------------------------------------------------- */

/* By weight_map, else by what the shards have: an index need not name all. -1 with cli->error set: none has it. */
static int find_shard(struct gb_cli *cli, json_t *document, const struct gb_cli_name *model, const char *tensor,
                      struct gb_cli_name *ret) {
    json_t *index = json_loads(gb_cli_text(document, "index.text"), 0, NULL);
    const char *file = json_string_value(json_object_get(json_object_get(index, "weight_map"), tensor));
    json_t *items = file ? NULL : gb_cli_model_tensors(cli, model, tensor);
    json_t *item;
    size_t i;

    ret->name[0] = '\0';
    json_array_foreach(json_object_get(document, "shards"), i, item) {
        if (file && strcmp(gb_cli_text(item, "file"), file) == 0)
            snprintf(ret->name, sizeof(ret->name), "%s", gb_cli_text(item, "buffer"));
    }
    json_array_foreach(items, i, item) {
        if (strcmp(gb_cli_text(item, "name"), tensor) == 0)
            snprintf(ret->name, sizeof(ret->name), "%s", gb_cli_text(item, "buffer"));
    }
    json_decref(index);
    if (!file && !items)
        return -1;
    json_decref(items);
    if (ret->name[0] != '\0')
        return 0;
    gb_cli_error(cli, GPUBUF_TENSOR_NOT_FOUND,
                 "no file of the model \"%s\" has a tensor \"%s\"; \"gpubuf ls %s\" lists them", model->name, tensor,
                 model->name);
    cli->error.status = 404;
    return -1;
}

bool gb_cli_model_shard(struct gb_cli *cli, struct gb_cli_name *name) {
    struct gpubuf_error told = cli->error;
    struct gb_cli_name shard = *name;
    json_t *document = NULL;
    bool found;

    if (!cli->options.tensor || cli->error.code != GPUBUF_BUFFER_NOT_FOUND)
        return false;
    gb_cli_keep_problem(cli);
    document = gb_cli_model_read(cli, name, NULL);
    if (!document)
        cli->error = told;
    found = document && find_shard(cli, document, name, cli->options.tensor, &shard) == 0;
    json_decref(document);
    if (found)
        *name = shard;
    return found;
}

/* --- seal --------------------------------------------------------------------------------------------------------- */

/* The index first: from then on no other version takes the place of the one that is sealed. */
json_t *gb_cli_seal_model(struct gb_cli *cli, const struct gb_cli_name *name, gb_cli_seal_fn *seal) {
    struct gb_cli_name at;
    json_t *document = NULL;
    json_t *answers = json_array();
    json_t *index;
    json_t *shard;
    size_t i;
    bool good;

    index = gb_cli_model_index(cli, name, &at) == 0 ? seal(cli, &at) : NULL;
    if (index)
        document = gb_cli_model_read(cli, name, NULL);
    good = document != NULL;
    json_array_foreach(json_object_get(document, "shards"), i, shard) {
        snprintf(at.name, sizeof(at.name), "%s", gb_cli_text(shard, "buffer"));
        good = good && json_array_append_new(answers, seal(cli, &at)) == 0;
    }
    json_array_append_new(answers, index);
    json_decref(document);
    if (good)
        return answers;
    json_decref(answers);
    return NULL;
}

/* --- switch ------------------------------------------------------------------------------------------------------- */

/* Whether there is a buffer of that name; cli->error stays. */
static bool is_buffer(struct gb_cli *cli, const struct gb_cli_name *name) {
    struct gpubuf_error told = cli->error;
    char target[GB_CLI_PATH];
    json_t *buffer = NULL;
    bool is;

    if (gb_cli_target(cli, target, BUFFER, name->session, name->name) == 0)
        buffer = gb_cli_request(cli, "GET", target, NULL);
    is = buffer != NULL;
    json_decref(buffer);
    cli->error = told;
    return is;
}

/* "m" as "m.index", malloc'd. */
static char *index_of(const char *text) {
    char *index;

    return asprintf(&index, "%s" ENDING, text) < 0 ? NULL : index;
}

int gb_cli_switch_models(struct gb_cli *cli, int argc, char **argv, char **ret) {
    int models = 0;
    int i;

    memset(ret, 0, (size_t)argc * sizeof(*ret));
    if (cli->error.code != GPUBUF_BUFFER_NOT_FOUND)
        return 0;
    gb_cli_keep_problem(cli);
    for (i = 0; i < argc; i += 2) {
        struct gb_cli_name link;
        struct gb_cli_name source;

        if (gb_cli_name(cli, argv[i], &link) < 0 || gb_cli_name(cli, argv[i + 1], &source) < 0)
            return 0;
        if (!strchr(argv[i + 1], '/')) /* of the link's session */
            memcpy(source.session, link.session, sizeof(source.session));
        if (is_buffer(cli, &source) || !gb_cli_is_model(cli, &source))
            continue;
        if (is_buffer(cli, &link)) {
            gb_cli_error(
                cli, GPUBUF_BAD_ARGUMENT,
                "\"%s\" is a model in several files, and \"%s\" a buffer, which would hide its link: \"gpubuf rm "
                "%s\" makes room for the name",
                source.name, link.name, link.name);
            return -1;
        }
        ret[i] = index_of(argv[i]);
        ret[i + 1] = index_of(argv[i + 1]);
        if (!ret[i] || !ret[i + 1])
            return gb_cli_error(cli, GPUBUF_NO_MEMORY, "out of memory");
        models++;
    }
    for (i = 0; i < argc && models > 0; i++)
        if (!ret[i] && !(ret[i] = strdup(argv[i])))
            return gb_cli_error(cli, GPUBUF_NO_MEMORY, "out of memory");
    return models > 0;
}

/* --- info --------------------------------------------------------------------------------------------------------- */

int gb_cli_show_model(struct gb_cli *cli, const struct gb_cli_name *name) {
    json_t *document = gb_cli_model_read(cli, name, NULL);
    struct gb_cli_name at;
    char target[GB_CLI_PATH];
    json_t *index = NULL;
    json_int_t tensors = 0;
    json_int_t bytes = 0;
    json_t *shard;
    json_t *shown;
    size_t i;

    if (document && gb_cli_model_index(cli, name, &at) == 0 &&
        gb_cli_target(cli, target, BUFFER, at.session, at.name) == 0)
        index = gb_cli_request(cli, "GET", target, NULL);
    if (!index) {
        json_decref(document);
        return gb_cli_failed(cli);
    }
    json_array_foreach(json_object_get(document, "shards"), i, shard) {
        tensors += json_integer_value(json_object_get(shard, "tensors"));
        bytes += json_integer_value(json_object_get(shard, "bytes"));
    }
    shown =
        json_pack("{s:s, s:s, s:O, s:I, s:I, s:I, s:s, s:O*, s:O*, s:O*, s:O}", "name", name->name, "session",
                  name->session, "version", json_object_get(document, "version"), "files",
                  (json_int_t)json_array_size(json_object_get(document, "shards")), "tensors", tensors, "bytes", bytes,
                  "index", at.name, "link", json_object_get(index, "link"), "sealed", json_object_get(index, "sealed"),
                  "updated_at", json_object_get(index, "updated_at"), "shards", json_object_get(document, "shards"));
    json_decref(document);
    json_decref(index);
    return gb_cli_show(cli, shown, NULL, 0);
}
