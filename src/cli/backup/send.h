/* Files of a checkpoint to a place of backups. */
#ifndef GB_CLI_BACKUP_SEND_H
#define GB_CLI_BACKUP_SEND_H

#include "cli/backup/manifest.h"
#include "cli/backup/origin.h"
#include "cli/backup/place.h"

struct gb_send_result {
    uint64_t sent_bytes;
    uint64_t kept_bytes; /* that stood there already */
    size_t sent_files;
    size_t kept_files;
};

/* Sends those files that are not there yet, in parts of part_bytes. 0, or -1 with err. */
int gb_send(struct gb_cli *cli, const struct gb_origin *origin, const struct gb_place *place,
            const struct gb_backup_manifest *manifest, uint64_t part_bytes, struct gb_send_result *ret,
            struct gpubuf_error *err);

#endif
