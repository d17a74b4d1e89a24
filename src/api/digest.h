/* Digests of what is downloaded. */
#ifndef GB_API_DIGEST_H
#define GB_API_DIGEST_H

#include "base/digest.h"
#include "http/http.h"

/* Want-Repr-Digest, or where that asks for nothing Want-Content-Digest: the known algorithm that pleases best. Returns 0, or -1
 * with MALFORMED_REQUEST. */
int gb_digest_wanted(const struct gb_http_request *request, bool *ret_wanted, enum gb_digest_alg *ret,
                     struct gb_error *err);

#endif
