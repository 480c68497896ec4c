import { randomUUID } from 'node:crypto'
import { until } from '../wait.js'
import { EtcdPeerNetwork } from './etcd-peer-network.js'
import { asksForUser, EtcdServer, peerPortOf, reserveEtcdPorts } from './etcd-server.js'

/** The fewest of which one can be missing. */
const SIZE = 3
const FORM_DEADLINE_MS = 20_000

/** Not as short as those of a server by itself: a machine that is busy would see elections without a reason. */
const PACE = { heartbeatMs: 30, electionTimeoutMs: 300 }

/** Members of one cluster, each a process; the peers reach one another through a network of ours. */
export interface EtcdCluster {
  readonly servers: readonly EtcdServer[]
  /** What clients take: `etcdBackend({ hosts: cluster.hosts })`. */
  readonly hosts: string[]
  /** The member that leads now. Waits for one where there is none. */
  leader(): Promise<EtcdServer>
  /** A member that runs and does not lead. */
  follower(): Promise<EtcdServer>
  /** From now on nothing passes between this member and the others, without anybody being told. Clients reach it. */
  cutOff(server: EtcdServer): void
  /** Ends all cuts. */
  mend(): void
  /** Fulfils when every member that runs takes requests with the consent of a majority. */
  ready(): Promise<void>
  stop(): Promise<void>
}

/** Starts a cluster of three. Fulfils when each of its members takes requests. */
export async function startEtcdCluster(): Promise<EtcdCluster> {
  const network = new EtcdPeerNetwork()
  const servers = await members(network)
  const stop = async () => {
    await Promise.all(servers.map((server) => server.stop()))
    await network.stop()
  }
  try {
    await Promise.all(servers.map((server) => server.restart()))
    await introduceAll(servers, network)
  } catch (error) {
    await stop()
    throw error
  }
  return {
    servers,
    hosts: servers.map(({ url }) => url),
    leader: () => found('a leader', () => leaderAmong(servers)),
    follower: () => found('a follower', () => followerAmong(servers)),
    cutOff: ({ name }) => network.cut(name),
    mend: () => network.mend(),
    ready: () => until('every member takes requests', () => allServe(servers), FORM_DEADLINE_MS),
    stop,
  }
}

async function members(network: EtcdPeerNetwork): Promise<EtcdServer[]> {
  const reservations = await Promise.all(Array.from({ length: SIZE }, reserveEtcdPorts))
  const named = await Promise.all(
    reservations.map(async (reservation, index) => {
      const name = `m${index}-${reservation.port}`
      const door = await network.doorTo(name, peerPortOf(reservation.port))
      return { reservation, name, peerUrl: `http://127.0.0.1:${door}` }
    }),
  )
  const initialCluster = named.map(({ name, peerUrl }) => `${name}=${peerUrl}`).join(',')
  const token = randomUUID()
  return named.map(
    ({ reservation, name, peerUrl }) =>
      new EtcdServer({ ...PACE, membership: { token, name, peerUrl, initialCluster } }, reservation),
  )
}

async function introduceAll(servers: readonly EtcdServer[], network: EtcdPeerNetwork): Promise<void> {
  const { members = [] } = (await servers[0]?.gateway.call('cluster/member/list')) ?? {}
  for (const { ID, name } of members) network.introduce(name, BigInt(ID).toString(16))
}

async function found(what: string, look: () => Promise<EtcdServer | undefined>): Promise<EtcdServer> {
  let server: EtcdServer | undefined
  const isFound = async () => {
    server = await look()
    return server !== undefined
  }
  await until(what, isFound, FORM_DEADLINE_MS)
  return server as unknown as EtcdServer
}

/** Whom most of the members that answer take for the leader: one that is cut off may still think so of itself. */
async function leaderAmong(servers: readonly EtcdServer[]): Promise<EtcdServer | undefined> {
  const statuses = await statusesOf(servers)
  const votes = statuses.map(({ leader }) => leader).filter((leader) => leader !== undefined && leader !== '0')
  const leading = statuses.find(({ id }) => votes.filter((vote) => vote === id).length > servers.length / 2)
  return leading?.server
}

async function followerAmong(servers: readonly EtcdServer[]): Promise<EtcdServer | undefined> {
  const leader = await leaderAmong(servers)
  if (leader === undefined) return undefined
  return (await statusesOf(servers)).find(({ server }) => server !== leader)?.server
}

async function statusesOf(servers: readonly EtcdServer[]) {
  const statuses = await Promise.all(
    servers.map(async (server) => {
      const status = await server.gateway.call('maintenance/status', {}, 500).catch(() => undefined)
      return {
        server,
        id: status?.header?.member_id as string | undefined,
        leader: status?.leader as string | undefined,
      }
    }),
  )
  return statuses.filter(({ id }) => id !== undefined)
}

async function allServe(servers: readonly EtcdServer[]): Promise<boolean> {
  const serving = servers
    .filter(({ running }) => running)
    .map(({ gateway }) => gateway.count('?').then(() => true, asksForUser))
  return (await Promise.all(serving)).every(Boolean)
}
