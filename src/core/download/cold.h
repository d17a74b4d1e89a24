/* Downloads from the disk: bytes that are not in memory are sent as they are read, without taking any of the device's.
 * A few blocks are read ahead, and none is sent before it has its checksum. */
#ifndef GB_CORE_DOWNLOAD_COLD_H
#define GB_CORE_DOWNLOAD_COLD_H

#include "core/download/download.h"

/* As gb_download_next. */
int gb_download_cold(struct gb_download *download, const void **ret_ptr, size_t *ret_n, struct gb_error *err);

/* The download has ended: reads under way free what is left. NULL is accepted. */
void gb_cold_free(struct gb_cold *cold);

#endif
