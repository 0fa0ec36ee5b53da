/* `narad gateway`: the HTTP gateway alone, in front of a broker elsewhere. */
#ifndef ND_GATEWAY_COMMAND_H
#define ND_GATEWAY_COMMAND_H

/* argv: what follows "gateway". Returns the exit status: 0 after a clean stop, 1 when it could not
 * start. */
int nd_gateway_main(int argc, const char *const *argv);

#endif
