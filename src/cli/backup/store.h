/* Small things at a place of backups: whether an object is there, texts, removal. */
#ifndef GB_CLI_BACKUP_STORE_H
#define GB_CLI_BACKUP_STORE_H

#include "cli/backup/manifest.h"
#include "cli/backup/web.h"

/* Makes the folders, where the place is one. */
int gb_store_prepare(const struct gb_place *place, struct gpubuf_error *err);

/* Whether the object of the file is there, whole: its size is right, and its checksum where the place knows it. */
int gb_store_look(struct gb_web *web, const struct gb_backup_file *file, bool *ret, struct gpubuf_error *err);

/* Writes a text under a name; it appears when all of it is there. */
int gb_store_put(struct gb_web *web, const char *object, const char *text, struct gpubuf_error *err);
/* Reads one. *ret is malloc'd; NULL where there is none. */
int gb_store_get(struct gb_web *web, const char *object, char **ret, size_t *ret_bytes, struct gpubuf_error *err);
/* Removes an object; one that is not there is no error. */
int gb_store_remove(struct gb_web *web, const char *object, struct gpubuf_error *err);

/* A checksum as S3 writes it: ret[9]. */
char *gb_store_crc_text(uint32_t crc, char *ret);

/* Fills err after a system call on an object of a folder that failed: what could not be done, and errno. -1. */
int gb_store_errno(const struct gb_place *place, const char *object, const char *what, struct gpubuf_error *err);
int gb_store_sync_folder(const struct gb_place *place, const char *object, struct gpubuf_error *err);

#endif
