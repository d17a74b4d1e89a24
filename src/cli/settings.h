/* What the options say about sessions, pools, buffers and restores, as members of a request's body. */
#ifndef GB_CLI_SETTINGS_H
#define GB_CLI_SETTINGS_H

#include "cli/cli.h"

/* Each sets members of body. -1 with cli->error set when a value cannot be meant. */
int gb_cli_session_settings(struct gb_cli *cli, json_t *body);
int gb_cli_pool_settings(struct gb_cli *cli, json_t *body);
int gb_cli_buffer_settings(struct gb_cli *cli, json_t *body);
int gb_cli_label_settings(struct gb_cli *cli, json_t *body);
int gb_cli_only(struct gb_cli *cli, json_t *body); /* the names of --only */
int gb_cli_restore_settings(struct gb_cli *cli, json_t *body);

/* A device by its index, a number, or by its UUID. */
json_t *gb_cli_device(const char *device);

#endif
