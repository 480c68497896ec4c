/** Reserves so many pairs of ports, says which, and has them until it is killed. */
import { reservePort } from '../../support/servers/free-ports.js'

const count = Number(process.argv[2])
const reservations = await Promise.all(Array.from({ length: count }, () => reservePort([10_000])))
process.send?.(reservations.map(({ port }) => port))
setInterval(() => {}, 60_000)
