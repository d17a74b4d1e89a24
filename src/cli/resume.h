/* put --retry: an upload that goes on where it broke off. */
#ifndef GB_CLI_RESUME_H
#define GB_CLI_RESUME_H

#include "cli/progress.h"
#include "cli/source.h"

/* Whether --retry is given, and the upload is one that the daemon can go on with: of a file, into a whole buffer, over
 * one connection. */
bool gb_cli_resumes(const struct gb_cli *cli, const struct gb_cli_source *source);

/* Uploads the source. The buffer; NULL with cli->error set, and no upload left where the daemon can be reached. The
 * caller's. */
json_t *gb_cli_put_resumable(struct gb_cli *cli, const struct gb_cli_source *source, const struct gb_cli_name *name,
                             const struct gpubuf_put_params *params, struct gb_cli_progress *progress);

#endif
