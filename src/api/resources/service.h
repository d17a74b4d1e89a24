/* The page at / and its files: src/web and Chart.js, written into the program by src/web/embed. */
#ifndef GB_API_RESOURCES_SERVICE_H
#define GB_API_RESOURCES_SERVICE_H

#include <stddef.h>

struct gb_web_file {
    const char *name; /* below /ui/ */
    const char *type; /* media type */
    const char *tag;  /* entity tag of the plain form, without quotes; the packed form's is this and "-gz" */
    const unsigned char *plain;
    size_t plain_len;
    const unsigned char *packed; /* the same, packed by gzip */
    size_t packed_len;
};

extern const struct gb_web_file gb_web_files[];
extern const size_t gb_web_file_count;

/* The paths of the page: gb_http_server_config.pages. */
extern const char *const gb_api_pages[];
extern const size_t gb_api_page_count;

#endif
