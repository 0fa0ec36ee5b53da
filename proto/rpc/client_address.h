/* Metadata with which a gateway tells for whom it asks. A node believes it over its Unix sockets
 * only, which nobody but its owner can connect to. */
#ifndef ND_CLIENT_ADDRESS_H
#define ND_CLIENT_ADDRESS_H

#define ND_CLIENT_ADDRESS "narad-client-address" /* numeric, without a port */

#endif
