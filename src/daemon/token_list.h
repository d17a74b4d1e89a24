/* What `gpubufd token list` prints. */
#ifndef GB_DAEMON_TOKEN_LIST_H
#define GB_DAEMON_TOKEN_LIST_H

#include <stdbool.h>

#include "base/error.h"
#include "daemon/tokens_file.h"
#include "store/store.h"

/* Prints the tokens of the file, then those of the database, as a table or as one JSON object. Returns 0 or -1. */
int gb_token_list_print(struct gb_token_store *tokens, const struct gb_tokens_file *file, bool json,
                        struct gb_error *err);

#endif
