/* The body of a download. */
#ifndef GB_API_TRANSFER_DOWNLOAD_SOURCE_H
#define GB_API_TRANSFER_DOWNLOAD_SOURCE_H

#include "api/transfer/download_plan.h"

/* Makes the source of a plan, before the first byte. */
void gb_download_source_init(struct download *d);

#endif
