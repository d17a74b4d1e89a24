/* Models in several files: each file is a table, NAME.00001 and so on, and the buffer NAME.index has a document that
 * names them. */
#ifndef GB_CLI_MODELS_H
#define GB_CLI_MODELS_H

#include "cli/cli.h"

#define GB_CLI_MODEL_MARK "gpubuf_model" /* of the document, with the version of its form */
#define GB_CLI_MODEL_FORM 1
#define GB_CLI_MODEL_VERSIONS 1000000000
#define GB_CLI_MODEL_DIGITS 5 /* of the number of a shard in its name */

/* Uploads bytes of a file so that they continue where they broke off, as --retry says. The buffer; NULL with cli->error
 * set, and no upload left where the daemon can be reached. The caller's. */
typedef json_t *gb_cli_put_continued(struct gb_cli *cli, int fd, uint64_t bytes, const struct gb_cli_name *name,
                                     const struct gpubuf_put_params *params, struct gb_cli_progress *progress);

/* put DIR NAME: the model that a folder has. The exit status. */
int gb_cli_put_model(struct gb_cli *cli, const char *given, const char *name, gb_cli_put_continued *put);

/* The document, checked, of the buffer NAME.index. NULL with cli->error set: BUFFER_NOT_FOUND where no model is called
 * so. ret_etag may be NULL. The caller's. */
json_t *gb_cli_model_read(struct gb_cli *cli, const struct gb_cli_name *name, char ret_etag[GPUBUF_ETAG_SIZE]);

/* get NAME DIR of such a model. The exit status. */
int gb_cli_get_model(struct gb_cli *cli, const struct gb_cli_name *name, const char *folder);

/* After a buffer was not found: whether its name is that of a model. cli->error stays, or says what is wrong with the
 * model's index: BUFFER_NOT_FOUND. */
bool gb_cli_is_model(struct gb_cli *cli, const struct gb_cli_name *name);

/* The tensors of a buffer, and those of a model's shards, each with its "buffer". prefix NULL: all. NULL with
 * cli->error set. The caller's. */
json_t *gb_cli_tensors(struct gb_cli *cli, const struct gb_cli_name *name, const char *prefix);
json_t *gb_cli_model_tensors(struct gb_cli *cli, const struct gb_cli_name *name, const char *prefix);

/* Deletes a model, unless another index names its shards: its index first, so that no reader finds half of it. The exit
 * status. */
int gb_cli_rm_model(struct gb_cli *cli, const struct gb_cli_name *name);

/* --- commands of one buffer, where the name is a model's ---------------------------------------------------------- */

/* Says that there is no such buffer, and what deletes shards of a model whose index is gone. The exit status. */
int gb_cli_model_absent(struct gb_cli *cli, const struct gb_cli_name *name);

/* Refuses a file as the buffer of a name that is a model's, which it would hide. 0, or the exit status. */
int gb_cli_model_hides(struct gb_cli *cli, const struct gb_cli_name *name);

/* After a buffer was not found: moves the name of a model to that of the shard that has the tensor of --tensor. False:
 * it does not, with cli->error that of the buffer, or that the model has no such tensor. */
bool gb_cli_model_shard(struct gb_cli *cli, struct gb_cli_name *name);

/* Seals a model's index, and then its shards, by seal: the buffer, or NULL with cli->error set. The array of them, the
 * caller's; NULL with cli->error set. */
typedef json_t *gb_cli_seal_fn(struct gb_cli *cli, const struct gb_cli_name *name);
json_t *gb_cli_seal_model(struct gb_cli *cli, const struct gb_cli_name *name, gb_cli_seal_fn *seal);

/* After links could not be made because a buffer was not found: whether a source is a model. Then ret has the
 * arguments with the names of indexes in its place. -1 with cli->error set. The texts are the caller's to free. */
int gb_cli_switch_models(struct gb_cli *cli, int argc, char **argv, char **ret);

/* info of a model. The exit status. */
int gb_cli_show_model(struct gb_cli *cli, const struct gb_cli_name *name);

/* --- names -------------------------------------------------------------------------------------------------------- */

/* Whether a path stays in the folder that it is relative to. */
bool gb_cli_model_holds(const char *path);

/* The version that a shard of the model is of, by the name of its buffer: 1 of "m.00001", 2 of "m.00001.v2"; 0: it is
 * none. */
uint64_t gb_cli_model_version(const char *buffer, const char *name);

/* "m.index". -1 with cli->error: BUFFER_NOT_FOUND where no buffer can be called so. */
int gb_cli_model_index(struct gb_cli *cli, const struct gb_cli_name *name, struct gb_cli_name *ret);

/* Deletes the shards that a document names, as far as they are called as the model's own: a document may name those of
 * another. Who maps them keeps them. Returns how many stay; cli->error says why the last does. document may be NULL. */
size_t gb_cli_model_drop(struct gb_cli *cli, const struct gb_cli_name *name, json_t *document);

#endif
