// Adds each number that it reads to a balance. It cannot commit a write after its lock is lost.
import { createInterface } from 'node:readline'
import { LockElection } from 'lock-election'
import { DataTypes, Sequelize } from 'sequelize'

const { PGHOST: host, PGPORT: port, PGUSER: username, PGDATABASE: database } = process.env
const sequelize = new Sequelize({ dialect: 'postgres', host, port, username, database, logging: false })
const Balance = sequelize.define('balance', { amount: DataTypes.INTEGER }, { freezeTableName: true, timestamps: false })
const session = await LockElection.connect({ ttl: 60_000 })
const hold = await session.acquire(process.argv[2] ?? 'balance')
console.log('ready')
for await (const line of createInterface(process.stdin)) {
  await sequelize.transaction(async transaction => {
    await hold.fence({ query: text => sequelize.query(text, { transaction }) })
    await Balance.increment('amount', { by: Number(line), where: { id: 1 }, transaction })
  }).then(() => console.log('added'), error => console.log(`${error.name}: ${error.message}`))
}
await sequelize.close()
await session.close()
